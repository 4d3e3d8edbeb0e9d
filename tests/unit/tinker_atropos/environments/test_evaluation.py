import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.environments.evaluation import Evaluation, fraction_metrics, wilson_interval

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
