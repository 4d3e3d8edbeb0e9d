"""Waiting within a deadline, one look after the other."""

import time
from collections.abc import Callable
from typing import TypeVar

from rl_operator.errors import BackEndUnreachableError
from rl_operator.tools.desk import Desk

Seen = TypeVar("Seen")


def awaited(desk: Desk, seen: Seen, look: Callable[[], Seen], holds: Callable[[Seen], bool], seconds: float) -> Seen:
    """What is seen once it holds, or when the time is over, which the door's own limit shortens.

    A back end that is away may come back meanwhile: raises BackEndUnreachableError where it has not. What else `look`
    raises ends the wait.
    """
    deadline = time.monotonic() + min(seconds, desk.longest_wait)
    away: BackEndUnreachableError | None = None
    while not holds(seen):
        left = deadline - time.monotonic()
        if left <= 0 or not desk.pause(min(desk.backend.poll_seconds, left)):
            break
        try:
            seen, away = look(), None
        except BackEndUnreachableError as error:
            away = error
    if away is not None:
        raise away
    return seen
