"""When a failed action is retried: the one rule for pauses."""

import random


def backoff(failures: int, first: float, longest: float) -> float:
    """Seconds before the next try: 0 without a failure, `first` after one, doubled by each further one."""
    # The exponent is bounded: what fails for months must not overflow.
    return min(first * 2.0 ** min(failures - 1, 16), longest) if failures > 0 else 0.0


def jittered(seconds: float, spread: float) -> float:
    """At random between (1 - spread) and (1 + spread) times as long, so that not all callers retry at once."""
    return seconds * random.uniform(1 - spread, 1 + spread)  # noqa: S311 -- jitter, not a secret
