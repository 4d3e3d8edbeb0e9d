r"""What a caller searches logs for. Pure, and linear in what is searched: logs and patterns are written by strangers.

Python's regular expressions take exponential time for some patterns (`(a+)+$`), so only those without repetition are
understood as patterns: texts with `.`, `[abc]`, `\d` and the like for one character, `^`, `$` and `\b`, `.*` for
anything between, and `|` for either. Everything else is a plain text.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

LONGEST: Final = 100
"""Characters of a pattern."""

_SPECIAL: Final = frozenset(".[^$|\\")
_TOKEN: Final = re.compile(
    r"(?P<gap>\.\*)|(?P<either>\|)"
    r"|(?P<one>(?:[^\\.*+?{}\[\]|()]|\.|\\[bBdDwWsS\W]|\[\^?(?:[^\]\[\\&~|-]|-(?!-)|\\[dDwWsS\W])+\])(?![*+?{]))"
)

Pieces = tuple[re.Pattern[str], ...]
"""What `.*` separates. Each is of a fixed length, so the first place where it fits is as good as any other."""


@dataclass(frozen=True)
class Search:
    """`taken_as`: how the text was understood."""

    taken_as: Literal["pattern", "plain text"]
    finds: Callable[[str], bool]


def search_for(text: str) -> Search:
    """Upper and lower case are the same."""
    alternatives = _alternatives(text) if len(text) <= LONGEST and _SPECIAL & set(text) else None
    if alternatives is None:
        plain = text.casefold()
        return Search("plain text", lambda line: plain in line.casefold())
    return Search("pattern", lambda line: any(_in_order(pieces, line) for pieces in alternatives))


def _alternatives(text: str) -> list[Pieces] | None:
    """None: the text is no pattern as this module understands them."""
    found, position = [[""]], 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            return None
        position = token.end()
        match token.lastgroup:
            case "gap":
                found[-1].append("")
            case "either":
                found.append([""])
            case _:
                found[-1][-1] += token[0]
    try:
        return [tuple(re.compile(piece, re.IGNORECASE) for piece in pieces) for pieces in found]
    except re.error:
        return None


def _in_order(pieces: Pieces, line: str) -> bool:
    start = 0
    for piece in pieces:
        found = piece.search(line, start)
        if found is None:
            return False
        start = found.end()
    return True
