"""Follow a run until a condition holds, and show it meanwhile."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from rl_operator.cli.exits import ExitCode
from rl_operator.cli.views.progress import Curve, news, plain_line
from rl_operator.errors import RefusedError, WaitTimeoutError
from rl_operator.targets.target import Target

if TYPE_CHECKING:
    from rl_operator.api.run import TrainingRun

CARE_SECONDS = 2.0
"""How often a follower makes sure that the run is being reconciled."""

Show = Callable[["TrainingRun"], None]
Until = Callable[["TrainingRun"], bool]


def follow(
    target: Target, namespace: str, name: str, until: Until, show: Show, *, timeout: float | None = None
) -> "TrainingRun":
    """Show the run at every look, also while it does not change: the terminal may. Returns it once `until` holds.

    Raises RefusedError if the run is deleted, WaitTimeoutError after `timeout` seconds.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    for run in _looks(target, namespace, name, deadline):
        show(run)
        if until(run):
            return run
    raise AssertionError("a run is looked at until the deadline, or until it is gone")


def at_rest(run: "TrainingRun") -> bool:
    """Finished, stopped or refused: nothing more happens unless someone asks for it."""
    return run.at_rest


def exit_code(run: "TrainingRun") -> ExitCode:
    """What a run at rest means for the caller."""
    if run.is_refused:
        return ExitCode.REFUSED
    return ExitCode.RUN_FAILED if run.status.phase == "Failed" else ExitCode.OK


@contextmanager
def shown(label: str) -> Iterator[Show]:
    """A panel that changes in place on a terminal; elsewhere one line per change."""
    from rl_operator.cli.views.live_lines import live_lines, redraws

    if not redraws(os.environ):
        yield _print_changes()
        return
    from rl_operator.cli.views.run_panel import panel

    curve = Curve()
    with live_lines() as lines:

        def show(run: "TrainingRun") -> None:
            curve.add(run)
            lines.show(run, lambda console: panel(run, curve, label, console))

        yield show


def _print_changes() -> Show:
    last = [""]

    def show(run: "TrainingRun") -> None:
        if news(run) != last[0]:
            last[0] = news(run)
            typer.echo(plain_line(run))

    return show


def _looks(target: Target, namespace: str, name: str, deadline: float | None) -> Iterator["TrainingRun"]:
    """The same object as long as the run does not change."""
    from rl_operator.api.run import TrainingRun

    run, version, cared = None, "", time.monotonic()
    while True:
        manifest = target.run(namespace, name)
        if manifest is None:
            raise RefusedError(f"run {name} was deleted from namespace {namespace} of {target.label}")
        if run is None or manifest["metadata"]["resourceVersion"] != version:
            version, run = manifest["metadata"]["resourceVersion"], TrainingRun.model_validate(manifest)
        yield run
        if deadline is not None and time.monotonic() > deadline:
            message = manifest.get("status", {}).get("message", "not reconciled yet")
            raise WaitTimeoutError(f"timed out waiting for run {name} of {target.label}; now: {message}")
        if time.monotonic() - cared > CARE_SECONDS:
            cared = time.monotonic()
            target.look_after(namespace, name)
        time.sleep(target.poll_seconds)
