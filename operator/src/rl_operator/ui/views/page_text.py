r"""Texts of models and environments as a page shows them: all of it can be seen, and there is an end to it. Pure.

Templates escape them. Characters that steer, hide or turn around what follows are written as Python does: `\u202e`.
"""

import json
from dataclasses import dataclass
from typing import Final

import regex

from rl_operator.api.value_text import text_of
from rl_operator.rollouts.visible_text import visible
from rl_operator.status.text.sentences import cut, redacted, without_control

LONGEST: Final = 1_024
"""Characters, before what cannot be seen is written as it is in Python."""


def short(text: str, most: int = LONGEST) -> str:
    return visible(cut(text, most))


def short_value(value: object) -> str:
    """A value of JSON; texts without quotes."""
    return short(value if isinstance(value, str) else text_of(value))


_STACKED: Final = regex.compile(r"(?<=\p{M}{4})\p{M}+")

LINE_END: Final = "⏎\n"
LONGEST_PIECE: Final = 200
"""Characters of one token. Its whole text is in the download."""

LONGEST_VALUE: Final = 300
LARGE: Final = 1e6


@dataclass(frozen=True, slots=True)
class ShownText:
    """`left`: characters that are not shown."""

    text: str
    left: int = 0


def seen(text: str) -> str:
    """Visible, and within its line: marks that are put on a character beyond four would cover what is above it."""
    shown = visible(text)
    return shown if shown.isascii() else _STACKED.sub(lambda found: ascii(found[0])[1:-1], shown)


def token_text(piece: str) -> tuple[str, bool]:
    """A token's text, and whether something in it is not what it looks like. Line ends are seen, and end the line."""
    if piece.isascii() and piece.isprintable():
        return (piece, False) if len(piece) <= LONGEST_PIECE else (_cut_piece(piece), True)
    if len(piece) > LONGEST_PIECE:
        piece = _cut_piece(piece)
    shown = [seen(line) for line in piece.split("\n")]
    return LINE_END.join(shown), "".join(shown) != piece.replace("\n", "")


def _cut_piece(piece: str) -> str:
    return f"{piece[:LONGEST_PIECE]}… ({len(piece) - LONGEST_PIECE:,} more characters)"


def shown_lines(text: str, most: int) -> ShownText:
    """In lines, as they were written; at most so many characters."""
    lines = text[:most].split("\n")
    return ShownText("\n".join("\t".join(map(seen, line.split("\t"))) for line in lines), max(0, len(text) - most))


def value_text(value: object) -> str:
    """A value of JSON in one line."""
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    shown = shown_lines(said, LONGEST_VALUE)
    return seen(shown.text) + ("…" if shown.left else "")


def figure_text(value: float | None) -> str:
    """Short, with a real minus sign; a dash for what is not known."""
    if value is None:
        return "–"
    if abs(value) >= LARGE:
        return f"{value:.3g}".replace("-", "−")
    short = f"{value:.3f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short.replace("-", "−")


LONGEST_LINE: Final = 2_000
_READ: Final = 4 * LONGEST_LINE
"""Characters of a line that are looked at: what steers a terminal may be most of them."""


def log_line(line: str) -> str:
    """A line of a log; of a progress bar that overwrites itself, its latest output."""
    latest = line.rstrip("\r\n").rpartition("\r")[2]
    shown = visible(redacted(without_control(latest[:_READ])).expandtabs(4))
    left = len(latest) - _READ
    return cut(shown, LONGEST_LINE) + (f" [{len(latest):,} characters]" if left > 0 else "")
