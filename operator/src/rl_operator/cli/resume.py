"""`rlctl resume`: start a draft, or go on with a run that was stopped."""

import typer

from rl_operator.cli.backend import choose_backend
from rl_operator.cli.exits import RefusedError
from rl_operator.cli.options import Context, Local, Namespace, RunName, StateDir
from rl_operator.cli.printing import program
from rl_operator.cli.targets import existing_run


def resume(
    name: RunName,
    *,
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    namespace: Namespace = "",
) -> None:
    """Set suspend to false: a draft starts, a stopped run goes on from its last checkpoint."""
    backend = choose_backend(local=local, context=context, state_dir=state_dir)
    place = namespace or backend.namespace
    run = existing_run(backend, place, name)
    status = run.get("status", {})
    if (phase := status.get("phase")) in ("Succeeded", "Failed"):
        raise RefusedError(
            f"run {name} of {backend.label} is over ({phase}); to train on from its weights, start a run with "
            f"startFrom: {{run: {name}}}"
        )
    if not run["spec"].get("suspend"):
        typer.echo(f"{name} is not suspended; nothing to do ({backend.label})")
        return
    backend.change_spec(place, name, {"suspend": False})
    does = "goes on from its last checkpoint" if "startTime" in status else "starts"
    typer.echo(f"{name} {does} ({backend.label}); follow it: {program()} watch {name}{backend.flags}")
