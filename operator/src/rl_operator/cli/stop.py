"""`rlctl stop`: end a run in order, with a checkpoint."""

from typing import Annotated

import typer

from rl_operator.backends.choice import choose_backend
from rl_operator.backends.gitops import suspend_warning
from rl_operator.backends.targets import existing_run
from rl_operator.cli.follow import at_rest, follow
from rl_operator.cli.options import Context, Local, Namespace, RunName, StateDir
from rl_operator.errors import RefusedError


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
    backend = choose_backend(local=local, context=context, state_dir=state_dir)
    place = namespace or backend.namespace
    run = existing_run(backend, place, name)
    phase = run.get("status", {}).get("phase")
    if phase in ("Succeeded", "Failed"):
        raise RefusedError(f"run {name} of {backend.label} is over ({phase}); there is nothing to stop")
    if warning := suspend_warning(run, suspend=True):
        typer.echo(warning, err=True)
    backend.change_spec(place, name, {"suspend": True})
    if not timeout:
        typer.echo(f"{name} is asked to stop ({backend.label})")
        return
    rested = follow(backend, place, name, at_rest, lambda _: None, timeout=timeout)
    typer.echo(f"{name}: {rested.status.phase}: {rested.status.message} ({backend.label})")
