"""What an evaluation says: how many of n samples were right, and how sure that makes one."""

import math
from dataclasses import dataclass

EVAL_METRIC = "eval/percent_correct"
"""The metric that becomes `evalPercentCorrect`; an environment class may name another one in `eval_metric`."""

Z_95 = 1.96
"""Two-sided 95 % quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`correct` of `n` independent samples on the held-out set were right."""

    correct: int
    n: int

    def to_metrics(self) -> dict[str, float]:
        low, high = wilson_interval(self.correct, self.n)
        return {
            EVAL_METRIC: self.correct / self.n,
            f"{EVAL_METRIC}_low": low,
            f"{EVAL_METRIC}_high": high,
            "eval/n": self.n,
        }


def wilson_interval(correct: int, n: int) -> tuple[float, float]:
    """The 95 % score interval of a proportion (Wilson 1927), which stays within [0, 1] and is sound near both ends.

    Raises ValueError when nothing was sampled.
    """
    if n <= 0:
        raise ValueError("an interval needs at least one sample")
    share, z2 = correct / n, Z_95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half_width = Z_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, centre - half_width), min(1.0, centre + half_width)
