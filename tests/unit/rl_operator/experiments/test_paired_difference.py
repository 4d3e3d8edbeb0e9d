"""The difference of runs on the same items, against computations that share nothing with it."""

import itertools
import math
from statistics import fmean, pstdev, variance

import pytest

from rl_operator.experiments.paired_difference import Answers, mcnemar, paired_difference, seeds_difference, t_quantile


@pytest.mark.parametrize("tosses", range(1, 9))
def test_mcnemar_is_the_share_of_all_tosses_that_are_as_uneven(tosses: int) -> None:
    every = [sum(each) for each in itertools.product((0, 1), repeat=tosses)]
    for heads in range(tosses + 1):
        uneven = sum(abs(2 * each - tosses) >= abs(2 * heads - tosses) for each in every) / len(every)
        assert mcnemar(heads, tosses - heads) == pytest.approx(uneven)


def test_mcnemar_of_many_items_is_a_number() -> None:
    assert mcnemar(0, 0) == 1
    assert mcnemar(2_000, 2_100) == pytest.approx(0.122, abs=1e-3)


@pytest.mark.parametrize(
    ("confidence", "freedom", "quantile"),
    [
        (0.95, 1, 12.7062), (0.95, 2, 4.3027), (0.95, 3, 3.1824), (0.99, 5, 4.0321), (0.998, 2, 22.3271),
        (0.95, 10, 2.2281), (0.95, 249, 1.9695), (0.95, 1_001, 1.9600), (0.5, 1, 1.0),
    ],
)  # fmt: skip
def test_students_quantiles_are_those_of_tables(confidence: float, freedom: int, quantile: float) -> None:
    assert t_quantile(confidence, freedom) == pytest.approx(quantile, rel=2e-4)


ONE: Answers = {"a": (1, 0), "b": (0.5, 1), "c": (0, 0), "d": (1, 1), "only": (1,)}
OTHER: Answers = {"a": (0, 0), "b": (0.5, 0.5), "c": (0, 1), "d": (0,), "also": (1,)}


def test_the_interval_is_students_of_the_items_and_two_more() -> None:
    found = paired_difference(ONE, OTHER)
    assert found is not None
    differences = [0.5, 0.25, -0.5, 1.0]
    twice = [*differences * 2, 0, 0, 1.0, -1.0]  # each item weighs two, the two more ones one each
    reach = 3.1824 * pstdev(twice) / math.sqrt(6)
    assert (found.value, found.items, found.p) == (fmean(differences), 4, None)
    assert (found.low, found.high) == (
        pytest.approx(fmean(twice) - reach, rel=1e-4),
        pytest.approx(fmean(twice) + reach, rel=1e-4),
    )
    assert not found.decided
    again = paired_difference(OTHER, ONE)
    assert again is not None
    assert (again.value, again.low, again.high) == pytest.approx((-found.value, -found.high, -found.low))


def run(*rights: float) -> Answers:
    return {str(at): (right,) for at, right in enumerate(rights)}


@pytest.mark.parametrize(("items", "decided"), [(2, False), (5, False), (6, True)])
def test_a_few_items_that_all_agree_are_not_certainty(items: int, decided: bool) -> None:
    right = paired_difference(run(*[1] * items), run(*[0] * items))
    graded = paired_difference(run(*[0.9] * items), run(*[0.4] * items))
    assert right is not None
    assert graded is not None
    assert right.p == 2 / 2**items
    assert right.decided is decided
    assert graded.decided is (items > 4)
    assert graded.low < graded.high


def test_equal_runs_and_too_few_items() -> None:
    equal = paired_difference(run(1, 0, 1), run(1, 0, 1))
    assert equal is not None
    assert (equal.value, equal.low, equal.high, equal.p, equal.decided, equal.items_needed) == (0, 0, 0, 1, False, None)
    assert paired_difference(run(1), run(1)) is None
    assert paired_difference(ONE, {}) is None


def test_a_smaller_chance_is_a_wider_interval() -> None:
    usual, strict = (paired_difference(ONE, OTHER, chance) for chance in (0.05, 0.001))
    assert usual is not None
    assert strict is not None
    assert strict.high - strict.low > 2 * (usual.high - usual.low)


def test_seeds_that_scatter_and_items_that_do_not_are_a_test_of_two_samples() -> None:
    ones, others = (0.50, 0.56, 0.62), (0.40, 0.42)
    found = seeds_difference(*([run(*[mean] * 500) for mean in side] for side in (ones, others)))
    assert found is not None
    pooled = (2 * variance(ones) + variance(others)) / 3 * (1 / 3 + 1 / 2)
    assert found.value == pytest.approx(0.15)
    assert (found.high - found.low) / 2 == pytest.approx(t_quantile(0.95, 3) * math.sqrt(pooled), rel=0.02)


def test_seeds_that_agree_leave_the_scatter_of_items() -> None:
    found = seeds_difference([run(1, 0, 1, 1)] * 2, [run(0, 0, 0, 1)] * 2)
    alone = paired_difference(run(1, 0, 1, 1), run(0, 0, 0, 1))
    assert found is not None
    assert alone is not None
    assert found.value == alone.value
    assert (found.high - found.low) / t_quantile(0.95, 2) == pytest.approx(
        (alone.high - alone.low) / t_quantile(0.95, 3)
    )


def test_what_is_left_of_each_answer_counts_once() -> None:
    """Two seeds that disagree on items and not in their means: that is chance of the answers, not of the seeds."""
    mixed = [run(1, 0, 1, 0), run(0, 1, 0, 1)]
    found = seeds_difference(mixed, [run(0, 0, 0, 0)] * 2)
    assert found is not None
    assert found.value == 0.5
    assert found.high - found.low < t_quantile(0.95, 2)


def test_one_seed_of_a_side_says_nothing() -> None:
    assert seeds_difference([ONE], [OTHER, OTHER]) is None
    assert seeds_difference([ONE, {}], [OTHER, OTHER]) is None
