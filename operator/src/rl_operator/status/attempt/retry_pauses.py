"""How long to wait before retrying something that ended."""

from datetime import datetime, timedelta
from typing import Final

from rl_operator.backoff import backoff

MAX_PAUSE_SECONDS: Final = 300.0

SKEW_SECONDS: Final = 60.0
"""The largest expected difference between the clocks of two machines."""


def pause_seconds(first_seconds: float, times: int) -> float:
    """Doubles each time, from `first_seconds` after the first; 0 if it never ended."""
    return backoff(times, first_seconds, MAX_PAUSE_SECONDS)


def due_after(ended: datetime, pause: float, now: datetime) -> datetime:
    """When a pause of that many seconds is over. An end in the future means that a clock was set back since: then there
    is no wait, least of all for the hour by which it was set back.
    """
    due = ended + timedelta(seconds=pause)
    return now if (due - now).total_seconds() > pause + SKEW_SECONDS else due
