"""Lines at the end of a terminal that change in place, whatever the user does to the terminal meanwhile."""

import contextlib
import os
import shutil
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.text import Text

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
    steps = "".join(_steps(shown, wanted))
    return f"{NO_WRAP}{steps}{WRAP}" if steps else ""


def _steps(shown: Sequence[ScreenLine], wanted: Sequence[ScreenLine]) -> Iterator[str]:
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


def redraws(env_vars: Mapping[str, str]) -> bool:
    """Whether standard output is a screen for people; elsewhere lines are added."""
    return sys.stdout.isatty() and env_vars.get("TERM", "") not in WITHOUT_CURSOR and not env_vars.get("CI")


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
        if not self.is_intact(size):
            self._shown = ()
        wanted = screen_lines(render, size)
        sys.stdout.write(redraw(self._shown, wanted))
        sys.stdout.flush()
        self._shown, self._size, self._source = wanted, size, source

    def is_intact(self, size: os.terminal_size) -> bool:
        """Whether the lines are where they were. A terminal that became narrower may have folded or cut them, one that
        became lower has scrolled: they stay as they are, and are shown once more below.
        """
        return len(self._shown) < size.lines and all(line.width < size.columns for line in self._shown)

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
    return tuple(_screen_line(console, text) for text in render(console)[: console.height])


def _screen_line(console: Console, text: Text) -> ScreenLine:
    line = text.copy()
    line.truncate(console.width, overflow="ellipsis")
    with console.capture() as captured:
        console.print(line, end="", no_wrap=True, overflow="crop", highlight=False)
    return ScreenLine(captured.get(), line.cell_len)


@contextlib.contextmanager
def live_lines() -> Iterator[LiveLines]:
    """While the block runs, keys are not echoed: a pressed Enter would move the lines. After Ctrl-Z and `fg`, other
    things may be on the screen.
    """
    lines = LiveLines()
    with _without_echo(), _when_continued(lines.begin_again):
        yield lines


@contextlib.contextmanager
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


@contextlib.contextmanager
def _when_continued(act: Callable[[], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only that one may ask for signals
        yield
        return
    before = signal.signal(signal.SIGCONT, lambda *_: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, before)
