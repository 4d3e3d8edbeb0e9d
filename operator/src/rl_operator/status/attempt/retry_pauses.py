"""How long to wait before something that ended is tried again."""

from datetime import datetime, timedelta
from typing import Final

from rl_operator.backoff import backoff

MAX_PAUSE_SECONDS: Final = 300.0

SKEW_SECONDS: Final = 60.0
"""So far the clocks of two machines may be apart."""


def pause_seconds(first_seconds: float, times: int) -> float:
    """Doubles with every time, from `first_seconds` after the first; 0 when it never ended."""
    return backoff(times, first_seconds, MAX_PAUSE_SECONDS)


def due_after(ended: datetime, pause: float, now: datetime) -> datetime:
    """When a pause of so many seconds is over. An end in the future says that a clock was set back since: nothing is
    waited for then, least of all the hour that was taken away.
    """
    due = ended + timedelta(seconds=pause)
    return now if (due - now).total_seconds() > pause + SKEW_SECONDS else due
