"""`rlctl watch`, `wait` and `logs`: follow a run while it trains, or block a script until it has reached a point."""

import contextlib
import re
import sys
from typing import Annotated, Final

import typer

from rl_operator.api.training_run import TrainingRun
from rl_operator.cli.options import RunName, Scope, on_target
from rl_operator.cli.printing import one_line, program
from rl_operator.cli.views.follow import exit_code, follow, shown
from rl_operator.cli.views.run_lines import summary
from rl_operator.operator_errors import RefusedError
from rl_operator.status.text.sentences import without_control
from rl_operator.targets.runs.run_lookup import container_named, existing_run

HELD: Final = {
    "Draft": "is a draft and does not start by itself; start it",
    "Stopped": "is stopped and will not get there; resume it",
}
"""Why a run in this phase gets no further, and what to do."""


@on_target
def watch(name: RunName, *, scope: Scope) -> None:
    """Follow a run until it is over; Ctrl-C only stops watching."""
    target, place = scope.target, scope.namespace
    existing_run(target, place, name)
    target.look_after(place, name)
    with contextlib.suppress(KeyboardInterrupt):
        with shown(target.label) as show:
            run = follow(target, place, name, show)
        typer.echo(summary(run, target))
        raise typer.Exit(exit_code(run))


@on_target
def wait(
    name: RunName,
    *,
    until: Annotated[str, typer.Option(help="finished, or step=N.")] = "finished",
    timeout: Annotated[float | None, typer.Option(help="Seconds; exit code 124 when they have passed.")] = None,
    scope: Scope,
) -> None:
    """Wait until a run is finished or has trained N steps; stopping or a refusal ends the wait, too."""
    wanted = parse_until(until)
    target, place = scope.target, scope.namespace
    existing_run(target, place, name)
    target.look_after(place, name)

    def ends(run: TrainingRun) -> bool:
        return is_reached(run, wanted) or run.at_rest or is_too_far(run, wanted)

    run = follow(target, place, name, until=ends, timeout=timeout)
    typer.echo(f"{name}: {run.status.phase}: {one_line(run.status.message or '')} ({target.label})")
    if is_too_far(run, wanted) or (not is_reached(run, wanted) and run.status.phase == "Succeeded"):
        progress, succeeded = run.status.progress, run.status.phase == "Succeeded"
        steps = (progress.step if succeeded else progress.total_steps) if progress else 0
        raise RefusedError(f"run {name} has {steps} steps in all: {until} will not come")
    if not is_reached(run, wanted) and (held := HELD.get(run.status.phase or "")):
        raise RefusedError(f"run {name} {held}: {program()} resume {name}{target.flags}")
    raise typer.Exit(0 if wanted is not None and is_reached(run, wanted) else exit_code(run))


def parse_until(text: str) -> int | None:
    """The step; None for `finished`. Raises RefusedError if it is neither that nor `step=N`."""
    if text == "finished":
        return None
    if match := re.fullmatch(r"step=(\d{1,18})", text):
        return int(match[1])
    raise RefusedError(f"--until is {text!r}; it must be finished or step=N, like step=10")


def is_reached(run: TrainingRun, step: int | None) -> bool:
    """None: the end."""
    if step is None:
        return run.status.finished
    return run.status.progress is not None and run.status.progress.step >= step


def is_too_far(run: TrainingRun, step: int | None) -> bool:
    """A run's steps are frozen once it has started."""
    return step is not None and run.status.progress is not None and run.status.progress.total_steps < step


@on_target
def logs(
    name: RunName,
    *,
    container: Annotated[
        str, typer.Option("--container", "-c", help="trainer, environment, environment-1 …, api, or openenv.")
    ] = "trainer",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the container has ended.")] = False,
    tail: Annotated[int | None, typer.Option(help="Only the last lines.", min=0)] = None,
    scope: Scope,
) -> None:
    """Print the log of a container of the run's newest attempt.

    environment is the first environment, environment-1 the second: also where they run in pods of their own. openenv is
    the OpenEnv server beside the first one.
    """
    target, place = scope.target, scope.namespace
    pod, chosen = container_named(target, place, name, container)
    with contextlib.suppress(KeyboardInterrupt):
        for line in target.log_lines(place, pod, chosen, tail=tail, follow=follow):
            sys.stdout.write(without_control(line))
            sys.stdout.flush()
