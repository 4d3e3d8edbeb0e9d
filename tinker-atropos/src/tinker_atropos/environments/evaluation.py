"""The result of an evaluation: how many of n samples were correct, and its confidence interval."""

import math
from dataclasses import dataclass

EVAL_METRIC = "eval/percent_correct"
"""The metric that becomes `evalAccuracy`; an environment class may name another one in `eval_metric`."""

Z_95 = 1.96
"""Two-sided 95 % quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`correct` of `n` independent samples on the held-out set were correct."""

    correct: int
    n: int

    def to_metrics(self) -> dict[str, float]:
        return fraction_metrics(self.correct / self.n, self.n)


def fraction_metrics(value: float, n: int, name: str = EVAL_METRIC) -> dict[str, float]:
    """The metrics of an environment that returns one number, with the number `n` of completions that it sampled.

    Only a fraction has an interval: a value outside [0, 1] is some other score, and is reported with its n only. With
    n 0 nothing is known about its precision: the interval is [0, 1].
    """
    metrics = {name: value, f"{name.rpartition('/')[0]}/n": float(n)}
    if not 0 <= value <= 1:
        return metrics
    low, high = wilson_interval(value * n, n) if n else (0.0, 1.0)
    return {**metrics, f"{name}_low": low, f"{name}_high": high}


def wilson_interval(correct: float, n: int) -> tuple[float, float]:
    """The 95 % score interval of a proportion (Wilson 1927), which stays within [0, 1] and is accurate near both ends.

    Raises ValueError if nothing was sampled.
    """
    if n <= 0:
        raise ValueError("an interval needs at least one sample")
    share, z2 = correct / n, Z_95**2
    center = (share + z2 / (2 * n)) / (1 + z2 / n)
    half_width = Z_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, center - half_width), min(1.0, center + half_width)
