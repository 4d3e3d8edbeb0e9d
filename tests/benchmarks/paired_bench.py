"""What pairing by item is worth: `python tests/benchmarks/paired_bench.py [--tries N]`.

Two runs answer the same simulated items. How hard an item is they share (a logit of deviation 2); besides, each run has
its own strengths (deviation 0.5). Tables: of runs that are equal and runs that differ, how often the 95 % interval of
the difference holds the truth, how often each rule calls one run the better one (old: the runs' own intervals are
apart), and how many items each rule takes to see a difference in 4 of 5 cases. The percentile bootstrap over items
(2,000 resamples) stands beside the interval as its control. The last table is over seeds.
"""

import argparse
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rl_contract.confidence_intervals import wilson_interval
from rl_operator.experiments.paired_difference import POWER, paired_difference, seeds_difference
from tinker_atropos.environments.items.held_out import effective_samples

Array = npt.NDArray[np.float64]
HARDNESS, OWN, BASE = 2.0, 0.5, 0.5
SIZES = (20, 50, 100, 250)
KINDS = {"1 answer": (1, False), "2 answers": (2, False), "4 answers": (4, False), "2 graded": (2, True)}
RESAMPLES = 2_000


def sigmoid(logits: Array) -> Array:
    return 1 / (1 + np.exp(-logits))


def answers(rng: np.random.Generator, logits: Array, samples: int, *, graded: bool) -> Array:
    """[I, samples], from 0 to 1. A graded one is itself a share, which scatters around that of its item."""
    if graded:
        return sigmoid(logits[:, None] + rng.normal(0, 1, (len(logits), samples))).round(2)
    return (rng.random((len(logits), samples)) < sigmoid(logits)[:, None]).astype(np.float64)


def truth(shift: float, *, graded: bool, seeds: float = 0.0) -> float:
    """The difference over all items, by many of them."""
    rng = np.random.default_rng(1)
    noise = rng.normal(0, np.hypot(HARDNESS, np.hypot(OWN, seeds)), 2_000_000) + (
        rng.normal(0, 1, 2_000_000) if graded else 0
    )
    return float((sigmoid(BASE + shift + noise) - sigmoid(BASE + noise)).mean())


def by_item(values: Array) -> dict[str, tuple[float, ...]]:
    return {str(item): tuple(row) for item, row in enumerate(values.tolist())}


def own_interval(values: Array) -> tuple[float, float]:
    """As an evaluation reports it."""
    n = effective_samples([(sum(row), len(row)) for row in values.tolist()])
    return wilson_interval(float(values.mean()) * n, n)


def bootstrap(rng: np.random.Generator, gaps: Array) -> tuple[float, float]:
    counts = rng.multinomial(len(gaps), np.full(len(gaps), 1 / len(gaps)), RESAMPLES)
    low, high = np.quantile(counts @ gaps / len(gaps), (0.025, 0.975))
    return float(low), float(high)


def pair(rng: np.random.Generator, items: int, shift: float, samples: int, *, graded: bool) -> tuple[Array, Array]:
    hardness = rng.normal(BASE, HARDNESS, items)
    first, second = (
        answers(rng, hardness + rng.normal(0, OWN, items) + more, samples, graded=graded) for more in (shift, 0.0)
    )
    return first, second


def row(items: int, kind: str, shift: float, tries: int) -> list[float]:
    """Covered by the interval and by the bootstrap; called better by the old rule and by the new one."""
    samples, graded = KINDS[kind]
    rng, real = np.random.default_rng(items), truth(shift, graded=graded)
    found = np.zeros((tries, 4))
    for at in range(tries):
        first, second = pair(rng, items, shift, samples, graded=graded)
        difference = paired_difference(by_item(first), by_item(second))
        assert difference is not None
        low, high = bootstrap(rng, first.mean(1) - second.mean(1))
        (a, b), (c, d) = own_interval(first), own_interval(second)
        found[at] = (difference.low <= real <= difference.high, low <= real <= high, a > d or c > b, difference.decided)
    return [float(each) for each in found.mean(0)]


def seed_row(items: int, seeds: int, scatter: float, shift: float, tries: int) -> list[float]:
    """Covered; called better by `every seed of one is above every seed of the other`, and by the interval."""
    rng, real = np.random.default_rng(seeds), truth(shift, graded=False, seeds=scatter)
    found = np.zeros((tries, 3))
    for at in range(tries):
        hardness = rng.normal(BASE, HARDNESS, items)
        sides = []
        for more in (shift, 0.0):
            strength = hardness + rng.normal(0, OWN, items) + more
            sides.append([answers(rng, strength + rng.normal(0, scatter), 2, graded=False) for _ in range(seeds)])
        difference = seeds_difference(*([by_item(run) for run in side] for side in sides))
        assert difference is not None
        ones, others = ([float(run.mean()) for run in side] for side in sides)
        apart = min(ones) > max(others) or min(others) > max(ones)
        found[at] = (difference.low <= real <= difference.high, apart, difference.decided)
    return [float(each) for each in found.mean(0)]


def items_for_power(kind: str, shift: float, tries: int) -> tuple[int, int]:
    """How many items the old rule and the new one take, among sizes that grow by a quarter."""
    found, size = [0, 0], 20.0
    while not all(found):
        power = row_power(int(size), kind, shift, tries)
        found = [was or (int(size) if now >= POWER else 0) for was, now in zip(found, power, strict=True)]
        size *= 1.25
    return found[0], found[1]


def row_power(items: int, kind: str, shift: float, tries: int) -> tuple[float, float]:
    samples, graded = KINDS[kind]
    rng, old, new = np.random.default_rng(items), 0, 0
    for _ in range(tries):
        first, second = pair(rng, items, shift, samples, graded=graded)
        difference = paired_difference(by_item(first), by_item(second))
        new += difference is not None and difference.decided and difference.value > 0
        old += own_interval(first)[0] > own_interval(second)[1]
    return old / tries, new / tries


def table(head: list[str], rows: Iterator[list[str]]) -> None:
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for cells in rows:
        print("| " + " | ".join(cells) + " |", flush=True)
    print()


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=600, help="Simulated pairs of runs in each cell.")
    tries = parser.parse_args().tries

    def pairs() -> Iterator[list[str]]:
        for kind in KINDS:
            for items in SIZES:
                equal, better = (row(items, kind, shift, tries) for shift in (0.0, 0.5))
                yield [kind, str(items), *map(percent, (*equal, *better))]

    print(f"truth of the shift 0.5: {truth(0.5, graded=False):.3f}, graded {truth(0.5, graded=True):.3f}\n")
    table(
        ["per item", "items", "equal: covered", "bootstrap", "old: one is better", "new", "differ: covered",
         "bootstrap", "old: one is better", "new"], pairs(),
    )  # fmt: skip
    table(
        ["per item", "true difference", "items, old rule", "items, new rule"],
        (
            [kind, f"{truth(shift, graded=KINDS[kind][1]):.3f}", *map(str, items_for_power(kind, shift, tries // 4))]
            for kind in KINDS
            for shift in (0.5, 1.0)
        ),
    )

    def seeds() -> Iterator[list[str]]:
        for scatter in (0.0, 0.1, 0.3):
            for count in (2, 3, 5):
                equal, better = (seed_row(250, count, scatter, shift, tries) for shift in (0.0, 0.5))
                yield [str(scatter), str(count), *map(percent, (*equal, *better))]

    table(
        ["scatter of seeds", "seeds", "equal: covered", "old: one is better", "new", "differ: covered",
         "old: one is better", "new"], seeds(),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    one, other = (by_item(each) for each in pair(rng, 5_000, 0.5, 4, graded=False))
    begun = time.perf_counter()
    paired_difference(one, other)
    print(f"5,000 items of 4 answers: {1_000 * (time.perf_counter() - begun):.0f} ms")


if __name__ == "__main__":
    main()
