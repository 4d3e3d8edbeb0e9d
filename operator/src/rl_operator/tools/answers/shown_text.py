"""Text of others, made safe to show: nothing in it controls a terminal, hides from a reader or grants access. And it
stays small, as an agent pays for every token. Pure.
"""

import json
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

from rl_operator.api.value_text import text_of
from rl_operator.status.text.sentences import cut, redacted, without_control


def legible(line: str) -> str:
    """A line without control characters, and without keys."""
    return redacted(without_control(line).replace("\r", "").replace("\n", ""))


def one_line(text: str) -> str:
    """The whole text, in one line."""
    return " ".join(legible(" ".join(text.split())).split())


LONGEST_VALUE: Final = 80


def short_value(value: object) -> object:
    """A value of JSON; the text of a long one, cut. In one line."""
    text = text_of(value)
    short = value if len(text) <= LONGEST_VALUE else cut(text, LONGEST_VALUE)
    return one_line(short) if isinstance(short, str) else short


MOST_ENTRIES: Final = 64


def bounded(value: object, characters: int) -> object:
    """JSON from an environment or a model: texts are cut, and contain no keys; of long lists the beginning is left."""
    match value:
        case str():
            return redacted(value)[:characters]
        case list():
            return [bounded(each, characters) for each in value[:MOST_ENTRIES]]
        case dict():
            entries = list(value.items())[:MOST_ENTRIES]
            return {str(name)[:MOST_ENTRIES]: bounded(each, characters) for name, each in entries}
    return value


LONGEST_LINE: Final = 500
MOST_CHARACTERS: Final = 8_000
"""For all lines together."""

_READ: Final = 4 * LONGEST_LINE
"""Characters of a line that are examined: control sequences may take up most of them."""


def clean_line(line: str) -> str:
    """One line. For a progress bar that overwrites itself, its latest output."""
    visible = line.rstrip("\r\n").rpartition("\r")[2]
    return cut(legible(visible[:_READ]), LONGEST_LINE)


def that_fit(lines: Sequence[str]) -> Sequence[str]:
    """The newest lines, MOST_CHARACTERS in total, including their line ends."""
    total = 0
    for count, line in enumerate(reversed(lines)):
        total += len(line) + 1
        if total > MOST_CHARACTERS:
            return lines[len(lines) - count :]
    return lines


CHARACTERS_PER_TOKEN: Final = 3.5
"""For compact JSON, approximately."""

SHORTEST: Final = 24
"""Characters that are kept of a text that is cut."""

KEPT: Final = frozenset({"run_id", "status", "code", "observed_at", "wandb_url"})
"""Useless if cut."""


def compact(answer: object) -> str:
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def tokens(answer: object) -> float:
    return len(compact(answer)) / CHARACTERS_PER_TOKEN


def fit_tokens(answer: dict[str, object], most: float) -> dict[str, object]:
    """The answer in at most this many tokens, as far as cutting its longest texts, all to one length, achieves that."""
    copy: dict[str, object] = json.loads(compact(answer))
    if tokens(copy) <= most:
        return copy
    lengths = range(SHORTEST, max(SHORTEST + 1, int(most * CHARACTERS_PER_TOKEN)))
    fitting = bisect_right(lengths, most, key=lambda length: tokens(_texts_cut(copy, length)))
    shortened: dict[str, object] = _texts_cut(copy, lengths[max(0, fitting - 1)])
    return shortened


def _texts_cut(value: object, length: int) -> Any:
    match value:
        case str():
            return cut(value, length)
        case dict():
            return {name: each if name in KEPT else _texts_cut(each, length) for name, each in value.items()}
        case list():
            return [_texts_cut(each, length) for each in value]
    return value
