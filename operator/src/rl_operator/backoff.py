"""When a failed action is retried, and a failed attempt is followed by the next one: the one rule for pauses."""

import random
from datetime import datetime, timedelta
from typing import Final


def backoff(failures: int, first: float, longest: float) -> float:
    """Seconds before the next try: 0 without a failure, `first` after one, doubled by each further one."""
    # The exponent is bounded: what fails for months must not overflow.
    return min(first * 2.0 ** min(failures - 1, 16), longest) if failures > 0 else 0.0


def jittered(seconds: float, spread: float) -> float:
    """At random between (1 - spread) and (1 + spread) times as long, so that not all callers retry at once."""
    return seconds * random.uniform(1 - spread, 1 + spread)  # noqa: S311 -- jitter, not a secret


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
