r"""Text that a model or an environment wrote, as a person can see all of it: nothing steers a terminal, hides or is
displayed in another order. What is not printable is escaped as Python does it: `\x1b`, `\u202e`, `\n`. Pure.
"""

import re
import unicodedata
from typing import Final

_ODD: Final = re.compile(r"[^\x20-\x7e\xa1-\xac\xae-\u02ff]")
"""Candidates; `isprintable` decides. Most texts have few of them."""


def visible(text: str) -> str:
    """In one line."""
    return _ODD.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def shortened(text: str, width: int) -> str:
    """The visible text in at most `width` columns of a terminal, with an ellipsis where it was cut in the middle: the
    end of an answer says as much as its beginning.
    """
    width = max(width, 3)
    if len(text) > 8 * width:
        text = f"{text[: 4 * width]}…{text[-4 * width :]}"
    whole = visible(text)
    if columns_of(whole) <= width:
        return whole
    end = _fitting(whole[::-1], (width - 1) // 3)
    return f"{_fitting(whole, width - 1 - columns_of(end))}…{end[::-1]}"


def _fitting(text: str, width: int) -> str:
    used = 0
    for at, character in enumerate(text):
        used += _columns(character)
        if used > width:
            return text[:at]
    return text


def wrapped(text: str, width: int) -> list[str]:
    """A visible text in lines of at most `width` columns, broken anywhere; at least one line."""
    lines = []
    while len(line := _fitting(text, max(width, 2))) < len(text):
        lines.append(line)
        text = text[len(line) :]
    return [*lines, text]


def columns_of(text: str) -> int:
    """Columns of a terminal: characters of East Asia take two, marks that are put on others none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def escaped_json(line: str) -> str:
    r"""A line of JSON with the same meaning, and nothing in it that steers a terminal: `\u009b` in place of CSI."""
    return _ODD.sub(_json_escaped, line)


def _json_escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
