"""What time it is where objects get their times: at the API server. Another machine's clock may be wrong, or jump."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

log = logging.getLogger(__name__)

TOLERANCE_SECONDS = 5.0
"""Answers take time, and their `Date` is in whole seconds."""
PATIENCE_SECONDS = 600.0
"""A clock that jumps and comes back within this long has not been believed."""


class ServerClock:
    """The time since the first answer, which cannot jump, on top of that answer's `Date`.

    Deadlines compare it with times that the API server wrote. A `Date` that says something else later on is believed
    once it has said so for PATIENCE_SECONDS. Before the first answer this machine's own clock has to do.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._monotonic = monotonic
        self._offset = wall().timestamp() - monotonic()
        self._heard = ""
        self._doubt: tuple[float, float] | None = None
        """Another offset, and since when the answers have been giving it."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._monotonic() + self._offset, UTC)

    def observe(self, date: str) -> None:
        """Take note of an answer's `Date`; many answers have the same one."""
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
    """Kubernetes' MicroTime, as Leases and Events have it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
