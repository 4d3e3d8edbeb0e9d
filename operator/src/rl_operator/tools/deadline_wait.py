"""Waiting within a deadline, one look after the other."""

import time
from collections.abc import Callable
from typing import TypeVar

from rl_operator.errors import TargetUnreachableError
from rl_operator.tools.tool_context import ToolContext

Seen = TypeVar("Seen")


def awaited(
    context: ToolContext, seen: Seen, look: Callable[[], Seen], holds: Callable[[Seen], bool], seconds: float
) -> Seen:
    """What is seen once it holds, or when the time is over, which the door's own limit shortens.

    A target that is away may come back meanwhile: raises TargetUnreachableError where it has not. What else `look`
    raises ends the wait.
    """
    deadline = time.monotonic() + min(seconds, context.longest_wait)
    away: TargetUnreachableError | None = None
    while not holds(seen):
        left = deadline - time.monotonic()
        if left <= 0 or not context.pause(min(context.target.poll_seconds, left)):
            break
        try:
            seen, away = look(), None
        except TargetUnreachableError as error:
            away = error
    if away is not None:
        raise away
    return seen
