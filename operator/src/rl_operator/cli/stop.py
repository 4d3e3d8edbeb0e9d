"""`rlctl stop`: end a run in order, with a checkpoint."""

from typing import Annotated

import typer

from rl_operator.cli.follow import at_rest, follow
from rl_operator.cli.options import Context, Local, Namespace, RunName, StateDir
from rl_operator.errors import RefusedError
from rl_operator.targets.choice import choose_target
from rl_operator.targets.gitops import suspend_warning
from rl_operator.targets.run_names import existing_run


def stop(
    name: RunName,
    *,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for it; 0: do not wait.")] = 120.0,
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    namespace: Namespace = "",
) -> None:
    """Stop a run: the trainer saves a checkpoint, from which the run can go on."""
    target = choose_target(local=local, context=context, state_dir=state_dir)
    place = namespace or target.namespace
    run = existing_run(target, place, name)
    phase = run.get("status", {}).get("phase")
    if phase in ("Succeeded", "Failed"):
        raise RefusedError(f"run {name} of {target.label} is over ({phase}); there is nothing to stop")
    if warning := suspend_warning(run, suspend=True):
        typer.echo(warning, err=True)
    target.change_spec(place, name, {"suspend": True})
    if not timeout:
        typer.echo(f"{name} is asked to stop ({target.label})")
        return
    rested = follow(target, place, name, at_rest, lambda _: None, timeout=timeout)
    typer.echo(f"{name}: {rested.status.phase}: {rested.status.message} ({target.label})")
