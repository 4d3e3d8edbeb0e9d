"""The result of an evaluation: how many of n samples were correct, and its confidence interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

EVAL_METRIC = "eval/percent_correct"
"""The metric that becomes `evalAccuracy`; an environment class may name another one in `eval_metric`."""

Z_95 = 1.96
"""Two-sided 95 % quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`correct` of `n` samples on the held-out set were correct; if samples are worth between 0 and 1, it is what they
    are worth together. For the interval they count as `effective_n` independent ones; None: all n.
    """

    correct: float
    n: int
    effective_n: float | None = None
    metric: str = EVAL_METRIC

    @classmethod
    def of_items(cls, verdicts: Sequence[Sequence[float]], metric: str = EVAL_METRIC) -> "Evaluation":
        """From the verdicts on the samples of each item. Raises ValueError if there are none."""
        counts = [(sum(each), len(each)) for each in verdicts if each]
        correct, n = sum(worth for worth, _ in counts), sum(samples for _, samples in counts)
        return cls(correct, n, effective_samples(counts), metric)

    def to_metrics(self) -> dict[str, float]:
        return fraction_metrics(self.correct / self.n, self.n, self.metric, effective_n=self.effective_n)


def effective_samples(counts: Sequence[tuple[float, int]]) -> float:
    """How many independent samples tell as much about the fraction of correct ones as these: (correct, samples) of
    each item. Between the number of items, nearly, and that of all samples. Raises ValueError if there are none.

    Samples of an item are alike: some items are easy, others hard. With the items g = 1 .. G as clusters, N samples in
    all, of which the fraction p is correct, the standard error of p is the sandwich's (Liang and Zeger 1986), with the
    correction for few clusters that is called CR1:

        SE^2 = G / (G - 1) * sum over g of (correct_g - p * samples_g)^2 / N^2

    Divided by the variance that N independent samples would have, p (1 - p) / (N - 1), this is Kish's design effect
    (Survey Sampling, 1965); N divided by it is the effective sample size, which goes into Wilson's interval (Kott and
    Carr 1997, Korn and Graubard 1998): so the interval stays within [0, 1]. A design effect below 1 is taken for
    chance. When all samples agree, nothing is known about how alike they are, and only items are counted.
    """
    if not counts:
        raise ValueError("an interval needs at least one sample")
    items, n = len(counts), sum(samples for _, samples in counts)
    share = sum(correct for correct, _ in counts) / n
    if items == 1 or share in (0.0, 1.0):
        return items
    residuals = sum((correct - share * samples) ** 2 for correct, samples in counts)
    design_effect = items / (items - 1) * residuals / n**2 / (share * (1 - share) / (n - 1))
    return n / max(1.0, design_effect)


def fraction_metrics(
    value: float, n: int, name: str = EVAL_METRIC, *, effective_n: float | None = None
) -> dict[str, float]:
    """The metrics of an environment that returns one number, with the number `n` of completions that it sampled.

    Only a fraction has an interval: a value outside [0, 1] is some other score, and is reported with its n only. The
    interval is that of `effective_n` independent samples (None: n). With n 0 nothing is known about its precision: the
    interval is [0, 1].
    """
    metrics = {name: value, f"{name.rpartition('/')[0]}/n": float(n)}
    if not 0 <= value <= 1:
        return metrics
    counted = n if effective_n is None else effective_n
    low, high = wilson_interval(value * counted, counted) if n else (0.0, 1.0)
    return {**metrics, f"{name}_low": low, f"{name}_high": high}


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
