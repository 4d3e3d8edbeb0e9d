"""`rlctl stop`: end a run cleanly, with a checkpoint.

`rlctl resume`: start a draft, or continue a stopped run.

`rlctl delete`: remove a run and what belongs to it. Checkpoints and weights stay with the backend.
"""

from functools import partial
from typing import Annotated

import typer

from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.cli.options import RunName, Scope, on_target
from rl_operator.cli.printing import program
from rl_operator.cli.views.follow import at_rest, follow
from rl_operator.cli.views.installing import installing
from rl_operator.documents.parse import parse_stored_run
from rl_operator.targets.local_target import install_requirements
from rl_operator.targets.runs.run_control import AskedBudget, resume_run, stop_run
from rl_operator.targets.runs.run_lookup import existing_run
from rl_operator.targets.target import Target


@on_target
def stop(
    name: RunName,
    *,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for it; 0: do not wait.")] = 120.0,
    scope: Scope,
) -> None:
    """Stop a run: the trainer saves a checkpoint from which it can be resumed."""
    target, place = scope.target, scope.namespace
    stop_run(target, place, name, _warn)
    if not timeout:
        typer.echo(f"{name} is asked to stop ({target.label})")
        return
    rested = follow(target, place, name, at_rest, lambda _: None, timeout=timeout)
    typer.echo(f"{name}: {rested.status.phase}: {rested.status.message} ({target.label})")


@on_target
def resume(
    name: RunName,
    *,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT", help="What it may cost in all from now on (spec.budget): 20, or '20 USD' with a currency."
        ),
    ] = None,
    scope: Scope,
) -> None:
    """Set suspend to false: a draft starts, a stopped run continues from its last checkpoint, a restored one begins.

    A run that has spent its budget continues with a higher one.
    """
    target, place = scope.target, scope.namespace
    does = resume_run(
        target,
        place,
        name,
        partial(_install_packages, target),
        _warn,
        budget=AskedBudget.of_text(budget) if budget else None,
    )
    if not does:
        typer.echo(f"{name} is not suspended; nothing to do ({target.label})")
        return
    typer.echo(f"{name} {does} ({target.label}); follow it: {program()} watch {name}{target.flags}")


def _warn(sentence: str) -> None:
    typer.echo(sentence, err=True)


def _install_packages(target: Target, run: Manifest) -> None:
    """What the requirements.txt of the run's environment lists, unless it is there."""
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
