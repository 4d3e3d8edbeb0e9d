import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.environments.evaluation import (
    Evaluation,
    effective_samples,
    fraction_metrics,
    wilson_interval,
)

# From the closed form, with 4 digits: https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval
KNOWN = [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (266, 500, 0.4882, 0.5753)]


@pytest.mark.parametrize(("correct", "n", "low", "high"), KNOWN)
def test_known_intervals(correct, n, low, high):
    assert wilson_interval(correct, n) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_interval_contains_the_fraction_and_stays_within_0_and_1(counts):
    correct, n = counts
    low, high = wilson_interval(correct, n)
    assert 0 <= low <= correct / n + 1e-12
    assert correct / n - 1e-12 <= high <= 1


def test_nothing_sampled_is_no_evaluation():
    with pytest.raises(ValueError, match="at least one sample"):
        wilson_interval(0, 0)


def test_metrics_of_an_evaluation():
    metrics = Evaluation(correct=9, n=10).to_metrics()
    assert metrics["eval/percent_correct"] == 0.9
    assert metrics["eval/n"] == 10
    assert metrics["eval/percent_correct_low"] < 0.9 < metrics["eval/percent_correct_high"]


def test_a_fraction_has_an_interval_from_the_observed_completions():
    metrics = fraction_metrics(0.5, 100)
    assert metrics == {"eval/n": 100, **Evaluation(50, 100).to_metrics()}


def test_a_fraction_of_unseen_samples_has_no_interval():
    metrics = fraction_metrics(0.5, 0)
    assert (metrics["eval/percent_correct_low"], metrics["eval/percent_correct_high"], metrics["eval/n"]) == (0, 1, 0)


def test_a_value_that_is_not_a_fraction_has_no_interval():
    assert fraction_metrics(87.5, 40) == {"eval/percent_correct": 87.5, "eval/n": 40}


def interval(counts: list[tuple[int, int]]) -> tuple[float, float]:
    verdicts = [[True] * correct + [False] * (samples - correct) for correct, samples in counts]
    metrics = Evaluation.of_items(verdicts).to_metrics()
    return metrics["eval/percent_correct_low"], metrics["eval/percent_correct_high"]


ITEMS = st.lists(st.integers(1, 6).flatmap(lambda m: st.tuples(st.integers(0, m), st.just(m))), min_size=1, max_size=60)


@given(ITEMS)
def test_samples_of_one_item_never_count_for_more_than_independent_ones(counts):
    correct, n = (sum(column) for column in zip(*counts, strict=True))
    effective = effective_samples(counts)
    assert 0 < effective <= n
    low, high = interval(counts)
    least, most = wilson_interval(correct, n)
    assert 0 <= low <= least + 1e-12
    assert most - 1e-12 <= high <= 1
    assert low - 1e-12 <= correct / n <= high + 1e-12


@given(st.lists(st.booleans(), min_size=2))
def test_one_sample_per_item_is_wilsons_interval(verdicts):
    counts = [(int(each), 1) for each in verdicts]
    assert effective_samples(counts) == pytest.approx(len(verdicts))


@given(st.lists(st.booleans(), min_size=2), st.integers(2, 6))
def test_repeating_a_sample_tells_nothing_new(verdicts, times):
    """All samples of an item agree: the items count, however often each is sampled."""
    counts = [(int(each) * times, times) for each in verdicts]
    items, n = len(counts), len(counts) * times
    exact = items if len(set(verdicts)) == 1 else n * (items - 1) / (n - 1)
    assert effective_samples(counts) == pytest.approx(exact)


def test_a_single_item_counts_once():
    assert effective_samples([(3, 8)]) == 1


def test_no_item_is_no_evaluation():
    with pytest.raises(ValueError, match="at least one sample"):
        Evaluation.of_items([[], []])


def test_the_standard_error_is_that_of_the_sandwich():
    """A regression on a constant, by the textbook's matrices: (X'X)^-1 (sum X_g' e_g e_g' X_g) (X'X)^-1, and CR1."""
    random = np.random.default_rng(5)
    chances = random.beta(2, 1, 40)
    samples = random.integers(1, 6, 40)
    correct = random.binomial(samples, chances)
    y = np.concatenate([np.repeat([1.0, 0.0], [c, n - c]) for c, n in zip(correct, samples, strict=True)])
    item, x = np.repeat(np.arange(40), samples), np.ones((len(y), 1))
    bread = np.linalg.inv(x.T @ x)
    residuals = y - y.mean()
    meat = sum(
        (x[item == g].T @ residuals[item == g])[:, None] @ (residuals[item == g] @ x[item == g])[None]
        for g in range(40)
    )
    error = math.sqrt((bread @ meat @ bread).item() * 40 / 39)
    counts = list(zip(correct.tolist(), samples.tolist(), strict=True))
    share = y.mean()
    assert math.sqrt(share * (1 - share) / effective_samples(counts)) == pytest.approx(
        error * math.sqrt((len(y) - 1) / len(y)), rel=1e-9
    )


COVERED = [(20, 4, 0.5), (50, 4, 0.9), (250, 2, 0.5), (250, 2, 0.98)]


@pytest.mark.parametrize(("items", "samples", "share"), COVERED)
def test_about_19_of_20_intervals_contain_the_true_fraction(items, samples, share):
    """Items differ as in the bundled task (intraclass correlation 0.25); without clusters 85 to 93 % would."""
    random = np.random.default_rng(11)
    runs, spread = 1_000, 1 / 0.25 - 1
    chances = random.beta(share * spread, (1 - share) * spread, (runs, items))
    correct = random.binomial(samples, chances)
    covered = 0
    for row in correct.tolist():
        n = effective_samples([(each, samples) for each in row])
        low, high = wilson_interval(sum(row) / (items * samples) * n, n)
        covered += low <= share <= high
    assert 0.925 <= covered / runs <= 0.985
