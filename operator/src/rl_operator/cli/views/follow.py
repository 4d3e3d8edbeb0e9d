"""Follow a run until a condition holds, and show it meanwhile: lines, or a panel for a terminal of any width.

What others wrote into it is cleaned.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import typer
from rich.console import Console
from rich.text import Text

from rl_operator.api.training_run import TrainingRun
from rl_operator.cli.exits import CommandExit
from rl_operator.cli.printing import one_line
from rl_operator.cli.views.live_lines import live_lines, redraws
from rl_operator.cli.views.run_lines import CURVE_WIDTH, Curve, baseline, held_out, news, plain_line
from rl_operator.operator_errors import RefusedError, WaitTimeoutError
from rl_operator.status.text.figure_text import money_spent
from rl_operator.targets.runs.run_text import time_left
from rl_operator.targets.target import CARE_SECONDS, Target

Show = Callable[[TrainingRun], None]
Until = Callable[[TrainingRun], bool]


def follow(
    target: Target, namespace: str, name: str, until: Until, show: Show, *, timeout: float | None = None
) -> TrainingRun:
    """Show the run at every look, also while it does not change: the terminal may. Returns it once `until` holds.

    Raises RefusedError if the run is deleted, WaitTimeoutError after `timeout` seconds.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    for run in _looks(target, namespace, name, deadline):
        show(run)
        if until(run):
            return run
    raise AssertionError("a run is looked at until the deadline, or until it is gone")


def at_rest(run: TrainingRun) -> bool:
    """Finished, stopped or refused: nothing more happens unless someone asks for it."""
    return run.at_rest


def exit_code(run: TrainingRun) -> CommandExit:
    """What a run at rest means for the caller."""
    if run.is_refused:
        return CommandExit.REFUSED
    return CommandExit.RUN_FAILED if run.status.phase == "Failed" else CommandExit.OK


@contextmanager
def shown(label: str) -> Iterator[Show]:
    """A panel that changes in place on a terminal; elsewhere one line per change."""
    if not redraws(os.environ):
        yield _print_changes()
        return

    curve = Curve()
    with live_lines() as lines:

        def show(run: TrainingRun) -> None:
            curve.add(run)
            lines.show(run, lambda console: panel(run, curve, label, console))

        yield show


def _print_changes() -> Show:
    last = [""]

    def show(run: TrainingRun) -> None:
        if news(run) != last[0]:
            last[0] = news(run)
            typer.echo(plain_line(run))

    return show


def _looks(target: Target, namespace: str, name: str, deadline: float | None) -> Iterator[TrainingRun]:
    """The same object as long as the run does not change."""
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


BAR_WIDTH: Final = 32
SHORTEST_BAR: Final = 4
GAP: Final = "  "
NARROW: Final = 47
"""Columns that the widest row of figures needs; with fewer, its words are left out."""

STYLES = {
    "Running": "green",
    "Succeeded": "bold green",
    "Failed": "bold red",
    "Stopping": "yellow",
    "Stopped": "yellow",
}


def panel(run: TrainingRun, curve: Curve, label: str, console: Console) -> list[Text]:
    """Phase, steps as a bar, reward with its curve, held-out accuracy, and what happens now; at most as many lines as
    the console has, of its width. Figures stay whole from 29 columns up; the message gets the lines that are left.
    """
    status, phase, width = run.status, run.status.phase or "Pending", console.width
    words = (Text(run.metadata.name, "bold"), Text(phase, STYLES.get(phase, "cyan")), Text(one_line(label), "dim"))
    figures = [*flow("", words, width, indent=0), *_steps(run, width)]
    if status.metrics and status.metrics.reward_mean is not None:
        figures += _reward(status.metrics.reward_mean, curve, width)
    if status.metrics and status.metrics.eval_accuracy is not None:
        figures += _held_out(run, width)
    if status.cost:
        cost = status.cost
        figures += flow("cost", [Text(money_spent(cost.amount, cost.currency, cost.budget))], width)
    message = folded(one_line(status.message or ""), max(1, console.height - len(figures)), console)
    return [*figures[: max(0, console.height - len(message))], *message]


def _steps(run: TrainingRun, width: int) -> list[Text]:
    progress = run.status.progress
    if progress is None:
        return []
    count = f"{progress.step}/{progress.total_steps}"
    room = min(BAR_WIDTH, width - _indent(width) - len(GAP) - len(count))
    bar = [_bar(progress.step, progress.total_steps, room)] if room >= SHORTEST_BAR else []
    pace = f"{progress.seconds_per_step:.2f} s per step" if progress.seconds_per_step else ""
    parts = [Text(part) for part in (pace, time_left(run)) if part]
    return [*flow("step", [*bar, Text(count)], width), *(flow("", parts, width, gap=", ") if parts else [])]


def _bar(step: int, total_steps: int, width: int) -> Text:
    """The rest is thinner, so that it can be told apart without colors."""
    done = width * min(step, total_steps) // max(1, total_steps)
    return Text.assemble(("━" * done, "green"), ("─" * (width - done), "dim"))


def _reward(reward: float, curve: Curve, width: int) -> list[Text]:
    figure = f"{reward:.3f}"
    points = min(CURVE_WIDTH, width - _indent(width) - len(GAP) - len(figure))
    return flow("reward", [Text(curve.line(max(1, points)), "green"), Text(figure)], width)


def _held_out(run: TrainingRun, width: int) -> list[Text]:
    now, before = Text(held_out(run)), Text(baseline(run))
    if width < NARROW:
        return [*flow("held-out", [now], width), *flow("before", [before], width)]
    return [*flow("held-out", [now, Text("now")], width), *flow("", [before, Text("before training")], width)]


def _indent(width: int) -> int:
    return 9 if width < NARROW else 10


def flow(name: str, words: Sequence[Text], width: int, *, gap: str = GAP, indent: int | None = None) -> list[Text]:
    """A named row, continued on further lines where the next word does not fit."""
    indent = _indent(width) if indent is None else indent
    lines, line, begun = list[Text](), Text(name.ljust(indent)), False
    for word in words:
        if begun and line.cell_len + len(gap) + word.cell_len > width:
            lines.append(line)
            line, begun = Text(" " * indent), False
        line.append_text(Text.assemble(gap if begun else "", word))
        begun = True
    return [*lines, line]


def folded(message: str, most: int, console: Console) -> list[Text]:
    """In at most so many lines; an ellipsis says that there is more. No line if there is no message."""
    if not message:
        return []
    lines = list(Text(message, "dim").wrap(console, console.width))
    for line in lines:
        line.rstrip()
    if len(lines) > most:
        lines = lines[:most]
        lines[-1].truncate(console.width - 1)
        lines[-1].append("…")
    return lines
