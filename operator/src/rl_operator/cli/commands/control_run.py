"""`rlctl stop`: end a run cleanly, with a checkpoint.

`rlctl resume`: start a draft, or continue a stopped run.

`rlctl delete`: remove a run and what belongs to it. Checkpoints and weights stay with the backend.
"""

from typing import Annotated

import typer

from rl_operator.api.names import STARTED_AS_ANNOTATION
from rl_operator.cli.options import RunName, Scope, on_target
from rl_operator.cli.printing import program
from rl_operator.cli.views.follow import at_rest, follow
from rl_operator.cli.views.installing import installing
from rl_operator.errors import RefusedError
from rl_operator.targets.gitops import suspend_warning
from rl_operator.targets.run_lookup import existing_run, was_restored
from rl_operator.targets.target import Manifest, Target


@on_target
def stop(
    name: RunName,
    *,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for it; 0: do not wait.")] = 120.0,
    scope: Scope,
) -> None:
    """Stop a run: the trainer saves a checkpoint from which it can be resumed."""
    target, place = scope.target, scope.namespace
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


@on_target
def resume(
    name: RunName,
    *,
    scope: Scope,
) -> None:
    """Set suspend to false: a draft starts, a stopped run continues from its last checkpoint, a restored one begins."""
    target, place = scope.target, scope.namespace
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
    _install_packages(target, run)
    target.change_spec(place, name, {"suspend": False}, {STARTED_AS_ANNOTATION: None} if restored else None)
    does = "continues from its last checkpoint" if "startTime" in status else "starts"
    does = "was restored from a backup and trains from the beginning" if restored else does
    typer.echo(f"{name} {does} ({target.label}); follow it: {program()} watch {name}{target.flags}")


def _install_packages(target: Target, run: Manifest) -> None:
    """What the requirements.txt of the run's environment lists, unless it is there."""
    from rl_operator.documents.parse import parse_stored_run
    from rl_operator.targets.separate_packages import install_requirements

    install_requirements(target, parse_stored_run(run), (), installing)


@on_target
def delete(
    name: RunName,
    *,
    scope: Scope,
) -> None:
    """Delete a run; if it is running, it is stopped first. Its weights stay."""
    target, place = scope.target, scope.namespace
    existing_run(target, place, name)
    target.delete(place, name)
    typer.echo(f"{name} is deleted ({target.label})")
