"""Text of others, made safe to show: nothing in it controls a terminal, hides from a reader or grants access. Pure.

A container's log as it may be shown to an agent: short, without keys, and without terminal control sequences. Pure.

Answers stay small: an agent pays for every token. Pure.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from rl_operator.status.text.sentences import cut, redacted, without_control


def legible(line: str) -> str:
    """A line without control characters, and without keys."""
    return redacted(without_control(line).replace("\r", "").replace("\n", ""))


def one_line(text: str) -> str:
    """The whole text, in one line."""
    return " ".join(legible(" ".join(text.split())).split())


LONGEST_LINE: Final = 500
MOST_CHARACTERS: Final = 8_000
"""For all lines together."""

_READ: Final = 4 * LONGEST_LINE
"""Characters of a line that are examined: control sequences may take up most of them."""


def clean_line(line: str) -> str:
    """One line. For a progress bar that overwrites itself, its latest output."""
    visible = line.rstrip("\r\n").rpartition("\r")[2]
    return cut(legible(visible[:_READ]), LONGEST_LINE)


def newest(lines: Iterable[str], most: int) -> tuple[str, ...]:
    """The last ones, at most this many."""
    return tuple(deque(lines, maxlen=most))


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

SHORTEST: Final = 40
"""Characters that are kept of a text that is cut."""

KEPT: Final = frozenset({"run_id", "status", "code", "observed_at", "wandb_url"})
"""Useless if cut."""

Path = tuple[str | int, ...]


def compact(answer: Any) -> str:
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def tokens(answer: Any) -> float:
    return len(compact(answer)) / CHARACTERS_PER_TOKEN


def fit_tokens(answer: dict[str, Any], most: float) -> dict[str, Any]:
    """The answer in at most this many tokens, as far as cutting its longest texts achieves that."""
    copy: dict[str, Any] = json.loads(compact(answer))
    while (excess := tokens(copy) - most) > 0:
        path, text = max(_texts(copy), key=lambda found: len(found[1]), default=((), ""))
        if len(text) <= SHORTEST:
            break
        length = max(SHORTEST, len(text) - 1 - int(excess * CHARACTERS_PER_TOKEN + 1))
        _put(copy, path, cut(text, length))
    return copy


def _texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    match value:
        case str():
            yield path, value
        case dict():
            for name, each in value.items():
                if name not in KEPT:
                    yield from _texts(each, (*path, name))
        case list():
            for index, each in enumerate(value):
                yield from _texts(each, (*path, index))


def _put(value: Any, path: Path, text: str) -> None:
    *way, last = path
    for step in way:
        value = value[step]
    value[last] = text
