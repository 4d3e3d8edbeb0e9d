"""Answers stay small: an agent pays for every token of them. Pure."""

import json
from collections.abc import Iterator
from typing import Any, Final

from rl_operator.status.sentences import cut

CHARACTERS_PER_TOKEN: Final = 3.5
"""Of compact JSON, about."""

SHORTEST: Final = 40
"""Characters that are left of a text that is cut."""

KEPT: Final = frozenset({"run_id", "status", "code", "observed_at", "wandb_url"})
"""Of no use in part."""

Path = tuple[str | int, ...]


def compact(answer: Any) -> str:
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def tokens(answer: Any) -> float:
    return len(compact(answer)) / CHARACTERS_PER_TOKEN


def fitted(answer: dict[str, Any], most: float) -> dict[str, Any]:
    """The answer in at most so many tokens, as far as cutting its longest texts gets it there."""
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
