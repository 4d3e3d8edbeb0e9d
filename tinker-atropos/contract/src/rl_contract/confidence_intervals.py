"""How sure a held-out figure is: environments report the interval, and the operator compares runs by it."""

import math
from typing import Final

Z_95: Final = 1.96
"""Two-sided 95 % quantile of the standard normal distribution."""


def wilson_interval(correct: float, n: float) -> tuple[float, float]:
    """The 95 % score interval of a proportion (Wilson 1927), which stays within [0, 1] and is accurate near both ends.

    Raises ValueError if nothing was sampled.
    """
    if n <= 0:
        raise ValueError("an interval needs at least one sample")
    share, z2 = correct / n, Z_95**2
    center = (share + z2 / (2 * n)) / (1 + z2 / n)
    half_width = Z_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, center - half_width), min(1.0, center + half_width)
