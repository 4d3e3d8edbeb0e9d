"""The status' metrics: what every entry must say, and what is derived from them."""

import math

import pytest

from rl_contract.logged_metrics import METRICS, describe
from rl_contract.status_metrics import (
    HELD_OUT_METRIC,
    HISTORY_METRICS,
    ORIGINS,
    SHOWN,
    EvaluatedFigure,
    Origin,
    RunMetrics,
    is_metric,
    reduced,
    round_metric,
)

NAMES = {metric.name for metric in METRICS}


@pytest.mark.parametrize(("name", "origin"), ORIGINS.items(), ids=ORIGINS)
def test_an_entry_is_described_and_comes_from_the_table_of_metrics(name: str, origin: Origin) -> None:
    assert RunMetrics.model_fields[name].description
    for metric in origin.metrics:
        assert metric in NAMES or f"*{metric}" in NAMES or describe(metric.replace("*", "3"))


def test_a_figure_of_a_step_has_one_metric() -> None:
    assert all(len(origin.metrics) == 1 for origin in reduced("step").values())


def test_each_metric_says_where_it_is_shown_and_under_which_words() -> None:
    assert SHOWN.keys() == ORIGINS.keys()
    assert len({each.label for each in SHOWN.values()}) == len(SHOWN)
    figure = EvaluatedFigure(value=0.5, low=0.4, high=0.6, temperature=1.0)
    metrics = RunMetrics(rollout_reward=0.25, held_out=figure, learning_rate=1e-4)
    assert list(metrics.texts("line").values()) == [("rollout reward", "0.250"), ("held-out", figure.text)]
    assert metrics.texts("page") == {
        "rollout_reward": ("rollout reward", "0.250"),
        "held_out": ("held-out", figure.full_text),
        "learning_rate": ("learning rate", "0.0001"),
    }
    assert metrics.answers == {"reward_mean": 0.25, "eval_percent_correct": 0.5, "learning_rate": 1e-4}


def test_before_training_and_after_it_the_same_is_measured() -> None:
    (evaluated,), (baseline,) = (reduced(kind).values() for kind in ("evaluation", "baseline"))
    assert evaluated.metrics == baseline.metrics == (HELD_OUT_METRIC,)


def test_a_result_keeps_the_held_out_figure_longest() -> None:
    figure = EvaluatedFigure(value=0.5, low=0.4, high=0.6, samples=64, step=4)
    metrics: RunMetrics | None = RunMetrics(
        rollout_reward=0.5, held_out=figure, baseline=figure, loss=0.1, staleness=1.0
    )
    left = []
    while (metrics := metrics.lighter if metrics else None) is not None:
        left.append(metrics)
    assert [each.staleness for each in left] == [None] * len(left)
    assert left[3:] == [
        RunMetrics(rollout_reward=0.5, held_out=figure.brief, baseline=figure.brief),
        RunMetrics(held_out=figure.brief, baseline=figure.brief),
        RunMetrics(held_out=figure.brief),
        RunMetrics(),
    ]


def test_a_point_of_the_history_is_small() -> None:
    assert HISTORY_METRICS == (
        "rolloutReward",
        "batchReward",
        "trainAccuracy",
        "heldOut",
        "loss",
        "logprobGap",
        "staleness",
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, "0.5", True, None, [0.5]])
def test_what_is_not_a_finite_number_is_left_out(value: object) -> None:
    assert RunMetrics.of_numbers({"loss": value, "rolloutReward": 0.5}) == RunMetrics(rollout_reward=0.5)


@pytest.mark.parametrize(("value", "kept"), [(400.0, 400), (12.5, None), (-1, None), (2**31, None)])
def test_a_count_is_a_count(value: float, kept: int | None) -> None:
    found = EvaluatedFigure.found({"eval/percent_correct": 0.5, "eval/n": value})
    assert found == EvaluatedFigure(value=0.5, samples=kept)


def test_a_figure_has_its_interval_and_the_samples_of_its_set() -> None:
    numbers = {
        "eval/hard/pass_at_4": 0.123456, "eval/hard/pass_at_4_low": 0.1, "eval/hard/pass_at_4_high": 0.2,
        "eval/hard/n": 64.0, "eval/hard/greedy_pass": 0.5, "eval/n": 8.0, "eval/odd": math.nan,
    }  # fmt: skip
    metric = "eval/hard/pass_at_4"
    figure = EvaluatedFigure(metric=metric, value=0.1235, low=0.1, high=0.2, samples=64, step=3)
    assert EvaluatedFigure.found(numbers, metric, step=3) == figure
    assert (figure.name, figure.text) == ("hard/pass_at_4", "0.123 [0.100, 0.200]")
    greedy = EvaluatedFigure.found(numbers, "eval/hard/greedy_pass")
    assert greedy == EvaluatedFigure(metric="eval/hard/greedy_pass", value=0.5), "how many these are is not told"
    assert EvaluatedFigure.found(numbers, "eval/odd") is None


@pytest.mark.parametrize("value", [None, math.nan, "0.5", {}])
def test_what_is_not_a_number_costs_that_metric_only(value: object) -> None:
    told = {"rolloutReward": 0.5, "loss": value, "heldOut": {"value": value}, "baseline": {"value": 0.1}}
    told |= {} if value == "0.5" else {"baseline": {"value": 0.1, "low": None}}
    assert RunMetrics.model_validate(told).with_changes(loss=None, held_out=None) == RunMetrics(
        rollout_reward=0.5, baseline=EvaluatedFigure(value=0.1)
    )


@pytest.mark.parametrize("value", [12_345, 12_345.0, -0.1235, 0.0])
def test_integers_and_few_digits_stay_exact(value: float) -> None:
    assert round_metric(value) == value


NO_FIGURES = ["1", None, True, False, math.nan, math.inf, -math.inf, 10**400, [], {}]


@pytest.mark.parametrize("value", NO_FIGURES, ids=[repr(value)[:12] for value in NO_FIGURES])
def test_values_that_are_not_metrics(value: object) -> None:
    assert not is_metric(value)


@pytest.mark.parametrize("value", [0, -3, 0.5, 2e-6, 1e200])
def test_values_that_are_metrics(value: float) -> None:
    assert is_metric(value)


@pytest.mark.parametrize(("value", "rounded"), [(0.712345, 0.7123), (2.34567e-6, 2.346e-6), (123456.7, 123500.0)])
def test_significant_digits_are_kept(value: float, rounded: float) -> None:
    assert round_metric(value) == rounded


def test_wandb_does_not_know_what_the_environment_calls_a_figure() -> None:
    told = EvaluatedFigure(metric="eval/mean_reward", value=0.5, step=4, temperature=0.0)
    assert EvaluatedFigure(value=0.5, samples=64).after(told) == told.with_changes(samples=64)
    assert told.after(EvaluatedFigure(value=0.5, samples=64)) == told.with_changes(samples=64)
    other = told.with_changes(metric="eval/hard/mean_reward")
    assert other.after(told) == other


def test_the_full_text_says_how_a_figure_was_made() -> None:
    figure = EvaluatedFigure(value=0.5, low=0.4, high=0.6)
    assert figure.full_text == figure.text
    made = figure.with_changes(metric="eval/mean_reward", temperature=0.0)
    assert made.full_text == f"{figure.text} (eval/mean_reward, temperature 0)"
