"""The context of a call: which target, for which caller, and within what limits.

Recent answers: a caller that asks again too soon gets the same one, and it costs no call.

Waiting within a deadline, by repeated looks.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from rl_operator.operator_errors import TargetUnreachableError
from rl_operator.targets.target import Target

LONGEST_WAIT_SECONDS = 240.0


@dataclass(frozen=True)
class Given:
    """An answer, and when the next look is worthwhile."""

    answer: dict[str, Any]
    due: datetime


class RecentAnswers:
    """By any key, for instance caller, namespace and run; the oldest are forgotten. Thread-safe."""

    def __init__(self) -> None:
        self._given: OrderedDict[tuple[str, ...], Given] = OrderedDict()
        self._lock = threading.Lock()

    def give(self, key: tuple[str, ...], given: Given) -> None:
        with self._lock:
            self._given[key] = given
            self._given.move_to_end(key)
            while len(self._given) > MAX_ANSWERS:
                self._given.popitem(last=False)

    def latest(self, key: tuple[str, ...]) -> Given | None:
        """However old."""
        with self._lock:
            return self._given.get(key)

    def forget(self, key: tuple[str, ...]) -> None:
        """Something was changed: the next look is worthwhile at once."""
        with self._lock:
            self._given.pop(key, None)


@dataclass(frozen=True)
class CallContext:
    """For one caller. A restart loses nothing: drafts are runs, and recent answers only save calls."""

    target: Target
    namespace: str
    agent: str = ""
    """Which of a user's agents calls, if known: their latest drafts are kept apart."""

    longest_wait: float = LONGEST_WAIT_SECONDS
    """Seconds; less for an interface whose clients time out earlier."""

    variables: Mapping[str, str] | None = None
    """The caller's environment variables, for calls to the backend; None if this process belongs to someone else."""

    recent: RecentAnswers = field(default_factory=RecentAnswers)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    given_up: threading.Event = field(default_factory=threading.Event)
    """Set by the interface when the caller no longer waits for the answer, or when the process ends."""

    def pause(self, seconds: float) -> bool:
        """Between two looks. False: the wait is over, answer with the current state."""
        return not self.given_up.wait(seconds)

    @property
    def caller(self) -> str:
        """A label's value that is the same for all calls of this agent of this user, and reveals neither's name."""
        return hashlib.sha256(f"{self.target.caller}\n{self.agent}".encode()).hexdigest()[:16]

    def where(self) -> dict[str, object]:
        """Which target answered; part of answers that name objects."""
        return {"target": self.target.label, "namespace": self.namespace}


MAX_ANSWERS = 2_000


Seen = TypeVar("Seen")


def awaited(
    context: CallContext, seen: Seen, look: Callable[[], Seen], holds: Callable[[Seen], bool], seconds: float
) -> Seen:
    """The first value for which `holds`, or the last one before the deadline, which the interface may shorten.

    A target that is away may come back meanwhile: raises TargetUnreachableError if it has not. Any other error of
    `look` ends the wait.
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
