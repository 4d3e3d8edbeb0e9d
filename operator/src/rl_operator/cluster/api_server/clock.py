"""The time at the API server, where objects get their timestamps. Another machine's clock may be wrong, or jump."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

log = logging.getLogger(__name__)

TOLERANCE_SECONDS = 5.0
"""Responses take time, and their `Date` is in whole seconds."""
PATIENCE_SECONDS = 600.0
"""A clock that jumps and comes back within this time is ignored."""


class ServerClock:
    """The time since the first response, which cannot jump, on top of that response's `Date`.

    Deadlines compare it with timestamps that the API server wrote. A `Date` that deviates later is accepted once it
    has done so for PATIENCE_SECONDS. Before the first response this machine's own clock is used.
    """

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._monotonic = monotonic
        self._offset = wall().timestamp() - monotonic()
        self._heard = ""
        self._doubt: tuple[float, float] | None = None
        """Another offset, and since when responses have been showing it."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._monotonic() + self._offset, UTC)

    def observe(self, date: str) -> None:
        """Take note of a response's `Date`; many responses have the same one."""
        if date == self._heard:
            return
        first, self._heard = not self._heard, date
        try:
            offset = parsedate_to_datetime(date).timestamp() - self._monotonic()
        except (ValueError, OverflowError):
            return
        if abs(offset - self._offset) <= TOLERANCE_SECONDS:
            self._doubt = None
        elif first or self._believed(offset):
            log.warning("the clock is set by %.0f s, to the API server's", offset - self._offset)
            self._offset, self._doubt = offset, None

    def _believed(self, offset: float) -> bool:
        now = self._monotonic()
        if self._doubt is None or abs(offset - self._doubt[0]) > TOLERANCE_SECONDS:
            self._doubt = (offset, now)
        return now - self._doubt[1] >= PATIENCE_SECONDS


def micro_time(moment: datetime) -> str:
    """Kubernetes' MicroTime, as in Leases and Events."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
