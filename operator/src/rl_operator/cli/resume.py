"""`rlctl resume`: start a draft, or go on with a run that was stopped."""

import typer

from rl_operator.api.names import STARTED_AS_ANNOTATION
from rl_operator.cli.options import Context, Local, Namespace, RunName, StateDir
from rl_operator.cli.printing import program
from rl_operator.errors import RefusedError
from rl_operator.targets.choice import choose_target
from rl_operator.targets.gitops import suspend_warning
from rl_operator.targets.restored_runs import was_restored
from rl_operator.targets.run_names import existing_run


def resume(
    name: RunName,
    *,
    local: Local = False,
    context: Context = "",
    state_dir: StateDir = None,
    namespace: Namespace = "",
) -> None:
    """Set suspend to false: a draft starts, a stopped run goes on from its last checkpoint, a restored one begins."""
    target = choose_target(local=local, context=context, state_dir=state_dir)
    place = namespace or target.namespace
    run = existing_run(target, place, name)
    status = run.get("status", {})
    if (phase := status.get("phase")) in ("Succeeded", "Failed"):
        raise RefusedError(
            f"run {name} of {target.label} is over ({phase}); to train on from its weights, start a run with "
            f"startFrom: {{run: {name}}}"
        )
    restored = was_restored(run)
    if not run["spec"].get("suspend") and not restored:
        typer.echo(f"{name} is not suspended; nothing to do ({target.label})")
        return
    if run["spec"].get("suspend") and (warning := suspend_warning(run, suspend=False)):
        typer.echo(warning, err=True)
    target.change_spec(place, name, {"suspend": False}, {STARTED_AS_ANNOTATION: None} if restored else None)
    does = "goes on from its last checkpoint" if "startTime" in status else "starts"
    does = "was restored from a backup and trains from the beginning" if restored else does
    typer.echo(f"{name} {does} ({target.label}); follow it: {program()} watch {name}{target.flags}")
