"""What counts as a figure: others wrote it, and it goes into objects that people and programs read."""

from typing import Final, TypeGuard

LARGEST: Final = 1e300
"""JSON has no infinity, and Python's whole numbers have no end."""


def is_metric(value: object) -> TypeGuard[float]:
    """A finite number: no text, no NaN, no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def round_metric(value: float) -> float:
    """4 significant digits, not decimals: a logprob gap of 2e-6 is not 0."""
    return float(f"{value:.4g}")
