"""How large a status may be: agents read it in full, and ten thousand of them are held in memory."""

import json
from collections.abc import Callable
from typing import Final

from rl_operator.api.refusal import Refusal
from rl_operator.api.status_fields import RunStatus
from rl_operator.status.text.sentences import shorten

WHILE_IT_LIVES: Final = 2048
AT_THE_END: Final = 4352
"""Bytes of JSON, besides the figures of an evaluation, which are few. Five recorded attempts alone take half of the
first: with them it is a target, not a guarantee.
"""

SHORT: Final = 64
"""Bytes of repeated text when there is too much."""


def size_of(status: RunStatus) -> int:
    """Bytes of its JSON, without spaces."""
    return len(json.dumps(status.to_wire(), separators=(",", ":"), ensure_ascii=False).encode())


def fit_size(status: RunStatus) -> RunStatus:
    """The status, with less repetition if it is too large. `message` and what decisions depend on stay complete."""
    limit = AT_THE_END if status.finished else WHILE_IT_LIVES
    for cut in _CUTS:
        if size_of(status.with_changes(evaluation=None)) <= limit:
            break
        status = cut(status)
    return status


def _refusals(status: RunStatus) -> RunStatus:
    return status.with_changes(refusals=tuple(_without_list(refusal) for refusal in status.refusals))


def _without_list(refusal: Refusal) -> Refusal:
    """The sentence names the nearest allowed values; the full list is in the reference."""
    allowed = json.dumps(refusal.allowed, ensure_ascii=False, default=str)
    return refusal.with_changes(
        allowed=refusal.allowed if len(allowed.encode()) <= SHORT else None, hint=shorten(refusal.hint, 4 * SHORT)
    )


def _conditions(status: RunStatus) -> RunStatus:
    cut = (each.with_changes(message=shorten(each.message, SHORT)) for each in status.conditions)
    return status.with_changes(conditions=tuple(cut))


def _failure(status: RunStatus) -> RunStatus:
    failure = status.failure
    return status.with_changes(
        failure=failure.with_changes(message=shorten(failure.message, SHORT)) if failure else None
    )


_CUTS: Final[tuple[Callable[[RunStatus], RunStatus], ...]] = (_refusals, _conditions, _failure)
