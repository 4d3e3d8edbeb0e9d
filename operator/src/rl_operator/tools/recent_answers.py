"""Answers given a moment ago: whoever asks again too soon gets the same one, and costs nobody a call."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

MAX_ANSWERS = 2_000


@dataclass(frozen=True)
class Given:
    """An answer, and when the next look is worth its while."""

    answer: dict[str, Any]
    due: datetime

    def seconds_until_due(self, now: datetime) -> int:
        return max(0, -(-(self.due - now) // timedelta(seconds=1)))


class RecentAnswers:
    """By any key, for instance caller, namespace and run; the oldest are forgotten. For calls from several threads."""

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
        """However long ago."""
        with self._lock:
            return self._given.get(key)

    def still_good(self, key: tuple[str, ...], now: datetime) -> Given | None:
        """None when there is none, or the next look is due."""
        given = self.latest(key)
        return given if given and now < given.due else None

    def forget(self, key: tuple[str, ...]) -> None:
        """Something was changed: the next look is worth its while at once."""
        with self._lock:
            self._given.pop(key, None)
