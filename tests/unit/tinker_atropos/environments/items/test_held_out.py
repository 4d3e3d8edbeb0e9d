import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.environments.items.held_out import (
    Estimate,
    Evaluation,
    effective_samples,
    fraction_metrics,
    pass_at,
    passes_reported,
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


@pytest.mark.parametrize("n", range(1, 9))
def test_pass_at_k_is_the_share_of_all_choices_of_k_samples_with_a_right_one(n):
    for correct, k in itertools.product(range(n + 1), range(1, n + 1)):
        choices = list(itertools.combinations([True] * correct + [False] * (n - correct), k))
        assert pass_at(k, n, correct) == pytest.approx(sum(map(any, choices)) / len(choices), abs=1e-12)


def test_pass_at_k_is_unbiased():
    """Over many draws of n samples its mean is 1 - (1 - q)^k; the plug-in 1 - (1 - c/n)^k is 0.02 and more below."""
    random = np.random.default_rng(2)
    q, n, k = 0.2, 8, 4
    draws = random.binomial(n, q, 40_000).tolist()
    estimates = [pass_at(k, n, each) for each in draws]
    assert np.mean(estimates) == pytest.approx(1 - (1 - q) ** k, abs=4 * np.std(estimates) / math.sqrt(len(draws)))
    assert np.mean([1 - (1 - each / n) ** k for each in draws]) < 1 - (1 - q) ** k - 0.02


@pytest.mark.parametrize(("k", "n"), [(0, 4), (5, 4)])
def test_pass_at_k_needs_k_samples(k, n):
    with pytest.raises(ValueError, match=f"pass@{k} of {n} samples is unknown"):
        pass_at(k, n, 1)


@pytest.mark.parametrize(("n", "ks"), [(1, []), (2, [2]), (4, [2, 4]), (6, [2, 4, 6]), (64, [2, 4, 8, 16, 32, 64])])
def test_which_k_are_reported(n, ks):
    assert passes_reported(n) == ks


VALUES = st.lists(st.integers(0, 28).map(lambda passed: passed / 28), min_size=1, max_size=60)


@given(VALUES, st.integers(1, 16))
def test_an_interval_over_items_contains_the_mean_and_stays_within_0_and_1(values, samples):
    estimate = Estimate.of_items(values, samples * len(values))
    assert 0 <= estimate.low <= estimate.value + 1e-12
    assert estimate.value - 1e-12 <= estimate.high <= 1
    assert estimate.value == pytest.approx(np.mean(values))


@given(VALUES, st.integers(1, 16))
def test_more_items_of_the_same_kind_tell_more(values, samples):
    once = Estimate.of_items(values, samples * len(values))
    thrice = Estimate.of_items(values * 3, samples * len(values) * 3)
    assert thrice.high - thrice.low < once.high - once.low


@given(st.permutations([0, 1, 2, 3, 4] * 12).flatmap(lambda counts: st.just(counts[:50])))
def test_an_interval_over_items_is_nearly_that_of_their_samples(counts):
    """pass@1 is mean@n, told in two ways."""
    n = 4 * len(counts)
    by_items = Estimate.of_items([each / 4 for each in counts], n)
    by_samples = Estimate.of_samples([[True] * each + [False] * (4 - each) for each in counts])
    assert (by_items.value, by_items.n) == (pytest.approx(by_samples.value), by_samples.n)
    assert by_items.high - by_items.low == pytest.approx(by_samples.high - by_samples.low, rel=0.06)


PASSED = [(50, 8, 4, 0.5), (100, 4, 4, 0.5), (250, 2, 2, 0.5), (100, 16, 8, 0.2), (20, 8, 4, 0.5), (250, 8, 4, 0.8)]


@pytest.mark.parametrize(("items", "samples", "k", "share"), PASSED)
def test_about_19_of_20_intervals_contain_the_true_pass_at_k(items, samples, k, share):
    """Items differ as above; E[1 - (1 - q)^k] of a beta distribution is known in closed form."""
    random = np.random.default_rng(17)
    runs, spread = 500, 1 / 0.25 - 1
    a, b = share * spread, (1 - share) * spread
    truth = 1 - math.prod((b + each) / (a + b + each) for each in range(k))
    correct = random.binomial(samples, random.beta(a, b, (runs, items)))
    found = [
        Estimate.of_items([pass_at(k, samples, each) for each in row], items * samples) for row in correct.tolist()
    ]
    covered = sum(each.low <= truth <= each.high for each in found) / runs
    assert 0.92 <= covered <= 0.98, covered


def test_any_figure_of_an_evaluation_may_decide():
    evaluation = Evaluation(
        3, 4, metric="eval/mean_reward", others={"eval/hard/mean_reward": Estimate(0.5, 8, 0.2, 0.8)}
    )
    assert evaluation.decided_by("eval/other") is None
    assert evaluation.decided_by("eval/mean_reward") == {
        "eval/percent_correct": 0.75, "eval/n": 4,
        **{f"eval/percent_correct{end}": pytest.approx(each) for end, each in zip(
            ("_low", "_high"), wilson_interval(3, 4), strict=True)},
        "eval/hard/mean_reward": 0.5, "eval/hard/mean_reward_low": 0.2, "eval/hard/mean_reward_high": 0.8,
    }  # fmt: skip
    decided = evaluation.decided_by("eval/hard/mean_reward")
    figure = [
        decided[name] for name in ("eval/percent_correct", "eval/percent_correct_low", "eval/percent_correct_high")
    ]
    assert [*figure, decided["eval/n"], decided["eval/mean_reward"]] == [0.5, 0.2, 0.8, 8, 0.75]
