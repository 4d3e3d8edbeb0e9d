"""A container's log as it may be shown to an agent: short, without keys, and without what steers a terminal. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from rl_operator.status.sentences import cut
from rl_operator.tools.plain_text import legible

LONGEST_LINE: Final = 500
MOST_CHARACTERS: Final = 8_000
"""Of all lines together."""

_READ: Final = 4 * LONGEST_LINE
"""Characters of a line that are looked at: what steers a terminal may take most of them."""


def clean_line(line: str) -> str:
    """One line. Of a progress bar that overwrites itself what it showed last."""
    visible = line.rstrip("\r\n").rpartition("\r")[2]
    return cut(legible(visible[:_READ]), LONGEST_LINE)


def newest(lines: Iterable[str], most: int) -> tuple[str, ...]:
    """The last ones, at most so many."""
    return tuple(deque(lines, maxlen=most))


def that_fit(lines: Sequence[str]) -> Sequence[str]:
    """The newest lines that are MOST_CHARACTERS together, their ends included."""
    total = 0
    for count, line in enumerate(reversed(lines)):
        total += len(line) + 1
        if total > MOST_CHARACTERS:
            return lines[len(lines) - count :]
    return lines
