"""Lines of a log as a page shows them: short, without keys, and with nothing that steers or hides. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from rl_operator.rollouts.visible_text import visible
from rl_operator.status.text.sentences import cut, redacted, without_control

LONGEST_LINE: Final = 2_000
_READ: Final = 4 * LONGEST_LINE
"""Characters of a line that are looked at: what steers a terminal may be most of them."""


def log_text(lines: Iterable[str]) -> Sequence[str]:
    return [log_line(line) for line in lines]


def log_line(line: str) -> str:
    """Of a progress bar that overwrites itself, its latest output."""
    latest = line.rstrip("\r\n").rpartition("\r")[2]
    shown = visible(redacted(without_control(latest[:_READ])).expandtabs(4))
    left = len(latest) - _READ
    return cut(shown, LONGEST_LINE) + (f" [{len(latest):,} characters]" if left > 0 else "")
