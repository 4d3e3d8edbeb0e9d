"""Held-out sets by name: which items an evaluation samples, what was sampled of them, and the figures of each set: how
many of n samples were correct, pass@k, and their confidence intervals.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from rl_contract.confidence_intervals import wilson_interval
from rl_contract.rollout_records import MAIN_SET
from rl_contract.status_metrics import HELD_OUT_METRIC
from tinker_atropos.environments.rollout.rollouts import Rollout
from tinker_atropos.errors import ConfigError

EVAL_METRIC = HELD_OUT_METRIC
"""An environment class may name another one in `eval_metric`."""

PREFIX = EVAL_METRIC.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over held-out items with its 95 % interval, which only a fraction has. `n` samples are behind it."""

    value: float
    n: int
    low: float | None = None
    high: float | None = None

    @classmethod
    def of_samples(cls, verdicts: Sequence[Sequence[float]]) -> "Estimate":
        """The mean of what the samples of each item are worth (mean@n). Raises ValueError if there are none."""
        counts = [(sum(each), len(each)) for each in verdicts if each]
        n, effective_n = sum(samples for _, samples in counts), effective_samples(counts)
        return cls._of(sum(worth for worth, _ in counts) / n, effective_n, n)

    @classmethod
    def of_items(cls, values: Sequence[float], n: int) -> "Estimate":
        """From one value of each item, from 0 to 1, such as its pass@k. Raises ValueError if there are none.

        Items are independent: with their variance s^2, and the mean p, the mean counts as p (1 - p) / (s^2 / G)
        independent samples, at most all `n`, in Wilson's interval, as in `effective_samples`. p and s^2 are taken with
        one item more that is 0 and one that is 1, in the way of Agresti and Coull (1998): near 0 and 1, or of few
        items, they would seem to be surer than they are.
        """
        if not values:
            raise ValueError("an interval needs at least one item")
        more = [*values, 0.0, 1.0]
        mean = math.fsum(more) / len(more)
        variance = math.fsum((value - mean) ** 2 for value in more) / len(more)
        return cls._of(min(1.0, math.fsum(values) / len(values)), min(n, len(values) * mean * (1 - mean) / variance), n)

    @classmethod
    def _of(cls, value: float, effective_n: float, n: int) -> "Estimate":
        return cls(value, n, *(wilson_interval(value * effective_n, effective_n) if 0 <= value <= 1 else ()))

    def to_metrics(self, name: str) -> dict[str, float]:
        told = {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}
        return {each: value for each, value in told.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`correct` of `n` samples on the held-out set were correct; if samples are worth between 0 and 1, it is what they
    are worth together. For the interval they count as `effective_n` independent ones; None: all n. `others` are more
    figures of the same evaluation, by metric: pass@k, greedy answers, other held-out sets.
    """

    correct: float
    n: int
    effective_n: float | None = None
    metric: str = EVAL_METRIC
    others: Mapping[str, Estimate] = field(default_factory=dict)

    @classmethod
    def of_items(cls, verdicts: Sequence[Sequence[float]], metric: str = EVAL_METRIC) -> "Evaluation":
        """From the verdicts on the samples of each item. Raises ValueError if there are none."""
        counts = [(sum(each), len(each)) for each in verdicts if each]
        correct, n = sum(worth for worth, _ in counts), sum(samples for _, samples in counts)
        return cls(correct, n, effective_samples(counts), metric)

    def to_metrics(self) -> dict[str, float]:
        metrics = fraction_metrics(self.correct / self.n, self.n, self.metric, effective_n=self.effective_n)
        for name, estimate in self.others.items():
            metrics |= _named(name, estimate, self.metric)
        return metrics

    def decided_by(self, metric: str) -> dict[str, float] | None:
        """All metrics, and that one under the name by which status knows the held-out figure, EVAL_METRIC, whose place
        it takes. None: there is no such metric.
        """
        if metric == self.metric:
            return replace(self, metric=EVAL_METRIC).to_metrics()
        if (chosen := self.others.get(metric)) is None:
            return None
        return {**self.to_metrics(), **chosen.to_metrics(EVAL_METRIC), f"{PREFIX}/n": float(chosen.n)}


def _named(metric: str, estimate: Estimate, main: str) -> dict[str, float]:
    """The names of a set's figures: another set's has its n beside it, as the main one's has."""
    prefix, _, name = metric.rpartition("/")
    n = {f"{prefix}/n": float(estimate.n)} if name == main.rpartition("/")[2] else {}
    return estimate.to_metrics(metric) | n


def pass_at(k: int, n: int, correct: int) -> float:
    """The chance that at least one of k samples of an item is right, estimated without bias from n >= k samples of
    which `correct` were: 1 - C(n - correct, k) / C(n, k) (Chen et al. 2021, arXiv:2107.03374).
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} of {n} samples is unknown: k must be 1 to {n}")
    return 1 - math.comb(n - correct, k) / math.comb(n, k)


def passes_reported(n: int) -> list[int]:
    """The k of the pass@k that n samples of an item tell: powers of 2 above 1, and n. pass@1 is mean@n."""
    return sorted({2**power for power in range(1, n.bit_length()) if 2**power <= n} | ({n} if n > 1 else set()))


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


MOST_SETS: Final = 16
"""Besides the main one. Each has up to 20 metrics, and the trajectory API takes 1,000 from an environment at once."""

SET_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}")
GREEDY: Final = "greedy"
"""How the metrics of greedy answers begin: `eval/greedy_percent_correct`."""

Item = TypeVar("Item")
HeldOutSets = Mapping[str, Sequence[Item]]


@dataclass(frozen=True, slots=True)
class PlayedItem(Generic[Item]):
    """An item of an evaluation: the sets it is in, its rollouts at the evaluation's temperature, and its greedy one.
    Those that failed are missing.
    """

    item: Item
    sets: tuple[str, ...]
    rollouts: Sequence[Rollout]
    greedy: Sequence[Rollout] = ()


def named_sets(main: Sequence[Item], others: HeldOutSets[Item], owner: str) -> dict[str, Sequence[Item]]:
    """All sets of an environment class `owner`, the main one first. Raises ConfigError for names that metrics cannot
    have.
    """
    if len(others) > MOST_SETS:
        raise ConfigError(
            f"{owner}.held_out_sets() has {len(others)} sets; {MOST_SETS} are allowed besides held_out_items(): "
            f"join some"
        )
    for name in others:
        if not (isinstance(name, str) and SET_NAME.fullmatch(name)) or name == MAIN_SET:
            why = "that is the set of held_out_items()" if name == MAIN_SET else f"a name matches {SET_NAME.pattern}"
            raise ConfigError(f"{owner}.held_out_sets() has a set named {name!r}: {why}; rename it")
    return {MAIN_SET: main, **others}


def items_to_play(sets: HeldOutSets[Item], most: int) -> list[tuple[Item, tuple[str, ...]]]:
    """The first `most` items of each set, and the sets of each. One object in several sets is one item, which is played
    once.
    """
    chosen = {name: list(items[:most]) for name, items in sets.items()}  # keeps them: an id may be used again
    found: dict[tuple[int, int], tuple[Item, list[str]]] = {}
    for name, items in chosen.items():
        times: Counter[int] = Counter()
        for item in items:
            found.setdefault((id(item), times[id(item)]), (item, []))[1].append(name)
            times[id(item)] += 1
    return [(item, tuple(names)) for item, names in found.values()]


def evaluation_of(
    played: Sequence[PlayedItem[Any]], worth: Callable[[float], float], metric: str, *, samples: int = 1
) -> Evaluation:
    """What rollouts are worth by `worth`, from their rewards: of the main set under `metric`, of another one under
    `eval/SET/…`. pass@k of `samples` per item, for which a worth must be right or wrong; 1: none.

    Raises ValueError if all rollouts of the main set failed.
    """
    figures: dict[str, Estimate] = {}
    for name in dict.fromkeys(name for each in played for name in each.sets):
        of_set = [each for each in played if name in each.sets]
        prefix = PREFIX if name == MAIN_SET else f"{PREFIX}/{name}"
        of_figures = _figures(of_set, worth, metric.rpartition("/")[2], samples)
        figures |= {f"{prefix}/{figure}": each for figure, each in of_figures}
    main = [[worth(each.score) for each in item.rollouts] for item in played if MAIN_SET in item.sets]
    others = {name: each for name, each in figures.items() if name != metric}
    return replace(Evaluation.of_items(main, metric), others=others)


def _figures(
    played: Sequence[PlayedItem[object]], worth: Callable[[float], float], leaf: str, samples: int
) -> Iterator[tuple[str, Estimate]]:
    """The figures of one set, by name; what nothing is known about is left out."""
    verdicts = [[worth(each.score) for each in item.rollouts] for item in played if item.rollouts]
    if verdicts:
        yield leaf, Estimate.of_samples(verdicts)
    for k in passes_reported(samples):
        known = [each for each in verdicts if len(each) >= k]
        if known:
            passed = [pass_at(k, len(each), int(sum(each))) for each in known]
            yield f"pass_at_{k}", Estimate.of_items(passed, sum(map(len, known)))
    if greedy := [[worth(each.score) for each in item.greedy] for item in played if item.greedy]:
        yield f"{GREEDY}_{leaf}", Estimate.of_samples(greedy)
