"""Texts of a status as a page shows them: in one line, all of it visible, and not long. Pure."""

from typing import Any, Final

from rl_operator.api.value_text import text_of
from rl_operator.rollouts.visible_text import visible
from rl_operator.status.text.sentences import cut

LONGEST: Final = 1_024
"""Characters, before what cannot be seen is written as it is in Python."""


def short(text: str, most: int = LONGEST) -> str:
    return visible(cut(text, most))


def short_value(value: Any) -> str:
    """A value of JSON; texts without quotes."""
    return short(value if isinstance(value, str) else text_of(value))
