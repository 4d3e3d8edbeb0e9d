"""From the lines that a terminal shows to other ones, with as few characters as possible. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

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
