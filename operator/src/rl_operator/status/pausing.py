"""How long to wait before something that ended is tried again."""

MAX_PAUSE_SECONDS = 300.0


def pause_seconds(first_seconds: float, times: int) -> float:
    """Doubles with every time, from `first_seconds` after the first; 0 when it never ended."""
    if times == 0:
        return 0.0
    doublings = min(times - 1, 10)
    return float(min(first_seconds * 2**doublings, MAX_PAUSE_SECONDS))
