"""What others wrote, as it may be shown: nothing in it steers a terminal, hides from a reader or opens a door. Pure."""

import re
from typing import Final

from rl_operator.status.sentences import redacted

_STEERING: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Also what hides characters, or shows them in another order than they are read."""


def legible(line: str) -> str:
    """A line without control characters, and without keys."""
    return redacted(_CONTROL.sub("", _STEERING.sub("", line)))


def one_line(text: str) -> str:
    """All of it, in one line."""
    return " ".join(legible(" ".join(text.split())).split())
