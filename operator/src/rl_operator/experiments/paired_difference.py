"""How far apart two runs are on the same held-out items, or two configurations with several seeds each. Pure.

An item that is hard for one run is hard for the other, too: what they share cancels out of their difference, whose
interval is narrower than the two intervals of the runs, often by half.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Any, Final

Answers = Mapping[str, Sequence[float]]
"""By held-out item, what each answer to it is worth; at least one."""

CHANCE: Final = 0.05
"""How often chance alone may make one of two equal runs the better one."""

POWER: Final = 0.8
"""A number of items is one with which a real difference is seen in 4 of 5 cases."""

FEWEST: Final = 2
"""Items: of one, nothing is known about their spread."""

LARGE: Final = 1_000
"""Degrees of freedom from which on Student's t is taken for normal."""


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """`value`: the mean over the common items of the first minus the second, each item counting once; `low` and `high`:
    its interval. `p`: of McNemar's exact test, which decides for items that both answered once. `items_needed` would
    show a difference of this size, if it is real; None: it is 0, or unknown.
    """

    value: float
    low: float
    high: float
    items: int
    decided: bool
    p: float | None = None
    items_needed: int | None = None

    @property
    def text(self) -> str:
        """`0.130 [0.090, 0.170]`."""
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def to_wire(self) -> dict[str, Any]:
        known = {"p": self.p, "itemsNeeded": self.items_needed}
        ends = {name: round(getattr(self, name), 4) for name in ("value", "low", "high")}
        return {**ends, "items": self.items, **{name: each for name, each in known.items() if each is not None}}


def paired_difference(one: Answers, other: Answers, chance: float = CHANCE) -> PairedDifference | None:
    """Of two runs; None: fewer than FEWEST items are common. `chance`: 1 less the interval's confidence.

    With d the differences of the items' means, the interval is Student's for their mean, after two items more: one at
    0, and half of one each at the largest |d| and at its opposite. So Agresti and Min do it for matched pairs
    (Statistics in Medicine 24, 2005): a few items that all agree are not taken for certainty. The answers to an item
    are one cluster, however many they are.

    Where both answered each item once, right or wrong, the verdict is McNemar's exact test: of the items on which they
    disagree, as many go one way as heads in tosses of a coin.
    """
    common = sorted(one.keys() & other.keys())
    if len(common) < FEWEST:
        return None
    gaps = [fmean(one[item]) - fmean(other[item]) for item in common]
    center, deviation = _moments(gaps)
    error = deviation / math.sqrt(len(common) + 2)
    reach = t_quantile(1 - chance, len(common) - 1) * error
    low, high, p = center - reach, center + reach, None
    if all(len(each[item]) == 1 and each[item][0] in (0, 1) for each in (one, other) for item in common):
        p = mcnemar(gaps.count(1), gaps.count(-1))
    value = fmean(gaps)
    decided = p < chance if p is not None else low > 0 or high < 0
    return PairedDifference(value, low, high, len(common), decided, p, _items_needed(value, deviation, chance))


def _moments(gaps: Sequence[float]) -> tuple[float, float]:
    """Mean and deviation with the two items more."""
    n, largest = len(gaps) + 2, max(map(abs, gaps))
    mean = math.fsum(gaps) / n
    return mean, math.sqrt(max(0.0, (math.fsum(d * d for d in gaps) + largest**2) / n - mean**2))


def _items_needed(value: float, deviation: float, chance: float) -> int | None:
    """N = ((z + z_power) s / d)², the usual power analysis of a paired test."""
    normal = NormalDist()
    reach = normal.inv_cdf(1 - chance / 2) + normal.inv_cdf(POWER)
    return math.ceil((reach * deviation / value) ** 2) if value else None


def mcnemar(more: int, less: int) -> float:
    """The exact p, two-sided, of `more` items that only the first got right, and `less` that only the second did
    (McNemar, Psychometrika 12, 1947): twice the tail of a binomial distribution of 1/2.
    """
    tosses, tail, ways = more + less, 0, 1
    for heads in range(min(more, less) + 1):
        tail += ways
        ways = ways * (tosses - heads) // (heads + 1)
    return min(1.0, tail / (1 << tosses) * 2)


def seeds_difference(ones: Sequence[Answers], others: Sequence[Answers]) -> PairedDifference | None:
    """Of two configurations, each with a run for each seed: of what training with another seed and other items would
    give. None: fewer than two seeds of one of them, or FEWEST common items.

    Seeds and items are both clusters, crossed: with V_S the variance by the runs' means (pooled over both sides), V_I
    that by the items' differences, and V_R that of what is left of each answer, which is in both, the variance is
    V_S + V_I - V_R, and no less than either (Cameron, Gelbach and Miller, Journal of Business & Economic Statistics 29,
    2011). There are few seeds: Student's t has as many degrees of freedom as there are runs, less two.
    """
    sides = (ones, others)
    common = sorted(set[str].intersection(*(set(run) for side in sides for run in side)))
    if min(map(len, sides)) < 2 or len(common) < FEWEST:
        return None
    means = [[[fmean(run[item]) for item in common] for run in side] for side in sides]  # [side][run][item]
    of_runs = [[fmean(run) for run in side] for side in means]
    of_items = [[fmean(of_item) for of_item in zip(*side, strict=True)] for side in means]
    of_sides = [fmean(runs) for runs in of_runs]
    gaps = [first - second for first, second in zip(*of_items, strict=True)]
    freedom, share = sum(map(len, sides)) - 2, sum(1 / len(side) for side in sides)
    by_seeds = share / freedom * sum((m - of_sides[s]) ** 2 for s in (0, 1) for m in of_runs[s])
    center, deviation = _moments(gaps)
    by_items = deviation**2 / (len(common) + 2)
    rest = sum(
        (value - of_runs[s][r] - of_items[s][i] + of_sides[s]) ** 2
        for s, side in enumerate(means)
        for r, run in enumerate(side)
        for i, value in enumerate(run)
    )
    in_both = share * rest / (freedom * (len(common) - 1) * len(common))
    error = math.sqrt(max(by_seeds + by_items - in_both, by_seeds, by_items))
    reach = t_quantile(1 - CHANCE, freedom) * error
    low, high = center - reach, center + reach
    return PairedDifference(of_sides[0] - of_sides[1], low, high, len(common), low > 0 or high < 0)


def t_quantile(confidence: float, freedom: int) -> float:
    """What |t| of Student's distribution stays below with this probability."""
    if freedom > LARGE:
        return NormalDist().inv_cdf((1 + confidence) / 2)
    below, above = 0.0, math.pi / 2
    for _ in range(60):
        middle = (below + above) / 2
        below, above = (middle, above) if _within(middle, freedom) < confidence else (below, middle)
    return math.sqrt(freedom) * math.tan(below)


def _within(angle: float, freedom: int) -> float:
    """The probability that |t| is below sqrt(freedom) tan(angle): Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    odd, cosine = freedom % 2, math.cos(angle)
    term = total = (cosine if odd else 1.0) if freedom > 1 else 0.0
    for power in range(2 + odd, freedom - 1, 2):
        term *= (power - 1) / power * cosine**2
        total += term
    total *= math.sin(angle)
    return (angle + total) * 2 / math.pi if odd else total
