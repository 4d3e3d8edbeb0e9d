"""Follow a run until a condition holds, and show it meanwhile: lines, or a panel for a terminal of any width.

What others wrote into it is cleaned. The panel's lines change in place, whatever the user does to the terminal.
"""

import os
import shutil
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import typer
from rich.console import Console
from rich.text import Text

from rl_contract.status_metrics import RunMetrics
from rl_operator.api.training_run import TrainingRun
from rl_operator.cli.exits import CommandExit
from rl_operator.cli.printing import CURVE_WIDTH, one_line
from rl_operator.cli.views.run_lines import Curve, news, plain_line
from rl_operator.operator_errors import RefusedError, WaitTimeoutError
from rl_operator.status.text.figure_text import money_spent
from rl_operator.targets.runs.run_text import time_left
from rl_operator.targets.target import CARE_SECONDS, Target

NO_WRAP: Final = "\x1b[?7l"
WRAP: Final = "\x1b[?7h"
"""A terminal may take a character to be wider than we do: then its line is cut off at the edge, and none moves."""

REST_OF_LINE: Final = "\x1b[K"
ALL_BELOW: Final = "\x1b[J"


@dataclass(frozen=True, slots=True)
class ScreenLine:
    """`text` with its styles, each of which ends in it; `width` in columns, less than the terminal has."""

    text: str
    width: int


def redraw(shown: Sequence[ScreenLine], wanted: Sequence[ScreenLine]) -> str:
    """What to write. The cursor is in the line below the shown ones before, and below the wanted ones afterward; both
    are fewer than the terminal has rows. A line that stays is not written again; nothing above is touched.
    """
    steps = "".join(_redrawn(shown, wanted))
    return f"{NO_WRAP}{steps}{WRAP}" if steps else ""


def _redrawn(shown: Sequence[ScreenLine], wanted: Sequence[ScreenLine]) -> Iterator[str]:
    row = len(shown)
    for index, (old, new) in enumerate(zip(shown, wanted, strict=False)):
        if new != old:
            yield f"{_moved(row, index)}{new.text}{REST_OF_LINE if new.width < old.width else ''}"
            row = index
    if tuple(shown) == tuple(wanted):
        return
    kept = min(len(shown), len(wanted))
    yield _moved(row, kept)
    if len(wanted) < len(shown):
        yield ALL_BELOW
    yield from (f"{line.text}{REST_OF_LINE}\r\n" for line in wanted[kept:])  # the last line of the screen scrolls


def _moved(row: int, to: int) -> str:
    """To the beginning of another row."""
    if row == to:
        return "\r"
    return f"\r\x1b[{row - to}A" if row > to else f"\r\x1b[{to - row}B"


WITHOUT_CURSOR: Final = ("", "dumb", "unknown")
"""Values of TERM that say that the cursor cannot be moved."""

Render = Callable[[Console], Sequence[Text]]
"""Lines for a console, at most as many and as wide as it has room for."""


class LiveLines:
    """The lines that are shown, and the size that the terminal had then."""

    def __init__(self) -> None:
        self._shown: tuple[ScreenLine, ...] = ()
        self._size = os.terminal_size((0, 0))
        self._source: object = None

    def show(self, source: object, render: Render) -> None:
        """Show what `render` makes of `source`. Costs nothing while neither that nor the terminal's size changes."""
        size = terminal_size()
        if source is self._source and size == self._size:
            return
        # A terminal that became narrower may have folded or cut the lines, one that became lower has scrolled: they
        # stay as they are, and are shown once more below.
        if len(self._shown) >= size.lines or any(line.width >= size.columns for line in self._shown):
            self._shown = ()
        wanted = screen_lines(render, size)
        sys.stdout.write(redraw(self._shown, wanted))
        sys.stdout.flush()
        self._shown, self._size, self._source = wanted, size, source

    def begin_again(self) -> None:
        """Something else wrote to the terminal: show everything, below that."""
        self._shown, self._source = (), None


def terminal_size() -> os.terminal_size:
    """As it is, whatever COLUMNS and LINES say: cursor moves depend on it. A terminal that knows no size has 80x24."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):  # not one of this machine
        return shutil.get_terminal_size()
    return size if all(size) else shutil.get_terminal_size()


def screen_lines(render: Render, size: os.terminal_size) -> tuple[ScreenLine, ...]:
    """One column stays free, so that no line wraps, and one row, for the cursor."""
    console = Console(width=max(1, size.columns - 1), height=max(1, size.lines - 1))
    lines = []
    for text in render(console)[: console.height]:
        line = text.copy()
        line.truncate(console.width, overflow="ellipsis")
        with console.capture() as captured:
            console.print(line, end="", no_wrap=True, overflow="crop", highlight=False)
        lines.append(ScreenLine(captured.get(), line.cell_len))
    return tuple(lines)


@contextmanager
def _without_echo() -> Iterator[None]:
    """Ctrl-C and the like keep their meaning. In the background the terminal is someone else's."""
    try:
        keyboard = sys.stdin.fileno()
        before = termios.tcgetattr(keyboard)
        foreground = os.tcgetpgrp(keyboard) == os.getpgrp()
    except (OSError, ValueError, termios.error):  # no terminal; a closed or replaced stdin
        foreground = False
    if not foreground:
        yield
        return
    silent = [*before]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(keyboard, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


@contextmanager
def _when_continued(act: Callable[[], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only that one may ask for signals
        yield
        return
    before = signal.signal(signal.SIGCONT, lambda *_: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, before)


Show = Callable[[TrainingRun], None]
Until = Callable[[TrainingRun], bool]


def follow(
    target: Target,
    namespace: str,
    name: str,
    show: Show = lambda _: None,
    *,
    until: Until = lambda run: run.at_rest,
    timeout: float | None = None,
) -> TrainingRun:
    """Show the run at every look, also while it does not change: the terminal may. It is the same object as long as the
    run does not change. Returns it once `until` holds: by default, once nothing more happens unless someone asks.

    Raises RefusedError if the run is deleted, WaitTimeoutError after `timeout` seconds.
    """
    run, version, begun = None, "", time.monotonic()
    cared = begun
    while True:
        manifest = target.run(namespace, name)
        if manifest is None:
            raise RefusedError(f"run {name} was deleted from namespace {namespace} of {target.label}")
        if run is None or manifest["metadata"]["resourceVersion"] != version:
            version, run = manifest["metadata"]["resourceVersion"], TrainingRun.model_validate(manifest)
        show(run)
        if until(run):
            return run
        if timeout is not None and time.monotonic() - begun > timeout:
            message = manifest.get("status", {}).get("message", "not reconciled yet")
            raise WaitTimeoutError(f"timed out waiting for run {name} of {target.label}; now: {message}")
        if time.monotonic() - cared > CARE_SECONDS:
            cared = time.monotonic()
            target.look_after(namespace, name)
        time.sleep(target.poll_seconds)


def exit_code(run: TrainingRun) -> CommandExit:
    """What a run at rest means for the caller."""
    if run.is_refused:
        return CommandExit.REFUSED
    return CommandExit.RUN_FAILED if run.status.phase == "Failed" else CommandExit.OK


@contextmanager
def shown(label: str) -> Iterator[Show]:
    """A panel that changes in place on a screen for people; elsewhere one line per change. Keys are not echoed
    meanwhile: a pressed Enter would move the lines. After Ctrl-Z and `fg`, other things may be on the screen.
    """
    last, curve, lines = "", Curve(), LiveLines()

    def add_line(run: TrainingRun) -> None:
        nonlocal last
        if news(run) != last:
            last = news(run)
            typer.echo(plain_line(run))

    def draw(run: TrainingRun) -> None:
        curve.add(run)
        lines.show(run, lambda console: panel(run, curve, label, console))

    if not sys.stdout.isatty() or os.environ.get("TERM", "") in WITHOUT_CURSOR or os.environ.get("CI"):
        yield add_line
    else:
        with _without_echo(), _when_continued(lines.begin_again):
            yield draw


BAR_WIDTH: Final = 32
SHORTEST_BAR: Final = 4
GAP: Final = "  "
NARROW: Final = 53
"""Columns that the widest row of figures needs; with fewer, its words are left out."""

STYLES = {
    "Draft": "dim",
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
    if status.metrics and status.metrics.rollout_reward is not None:
        figures += _reward(status.metrics.rollout_reward, curve, width)
    if status.metrics and status.metrics.held_out is not None:
        figures += _held_out(status.metrics, width)
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
    line = Text(curve.line(max(1, points)), "green")
    if width < NARROW:
        return [*flow("rollout", [line], width), *flow("reward", [Text(figure)], width)]
    return flow("rollout reward", [line, Text(figure)], width)


def _held_out(metrics: RunMetrics, width: int) -> list[Text]:
    now, before = (Text(figure.text if figure else "-") for figure in (metrics.held_out, metrics.baseline))
    if width < NARROW:
        return [*flow("held-out", [now], width), *flow("before", [before], width)]
    return [*flow("held-out", [now, Text("now")], width), *flow("", [before, Text("before training")], width)]


def _indent(width: int) -> int:
    return 9 if width < NARROW else 16


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
