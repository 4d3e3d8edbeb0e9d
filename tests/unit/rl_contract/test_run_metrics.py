"""The status' metrics: what every entry must say, and what is derived from them."""

import math

import pytest

from rl_contract.metric_table import METRICS, describe
from rl_contract.run_metrics import BY_WEIGHT, HISTORY_METRICS, ORIGINS, Origin, RunMetrics, reduced

NAMES = {metric.name for metric in METRICS}


@pytest.mark.parametrize(("name", "origin"), ORIGINS.items(), ids=ORIGINS)
def test_an_entry_is_described_and_comes_from_the_table_of_metrics(name: str, origin: Origin) -> None:
    assert RunMetrics.model_fields[name].description
    for metric in origin.metrics:
        assert metric in NAMES or f"*{metric}" in NAMES or describe(metric.replace("*", "3"))


def test_a_figure_of_a_step_has_one_metric() -> None:
    assert all(len(origin.metrics) == 1 for origin in reduced("step").values())


def test_before_training_and_after_it_the_same_is_measured() -> None:
    evaluated = {name.removeprefix("eval_"): origin.metrics for name, origin in reduced("evaluation").items()}
    baseline = {name.removeprefix("baseline_"): origin.metrics for name, origin in reduced("baseline").items()}
    assert evaluated == baseline | {"step": ()}


def test_a_result_keeps_the_held_out_figure_longest() -> None:
    assert BY_WEIGHT[:4] == ("evalAccuracy", "evalStep", "baselineAccuracy", "rewardMean")


def test_a_point_of_the_history_is_small() -> None:
    assert HISTORY_METRICS == ("rewardMean", "trainAccuracy", "evalAccuracy", "loss", "logprobGap", "staleness")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, "0.5", True, None, [0.5]])
def test_what_is_not_a_finite_number_is_left_out(value: object) -> None:
    assert RunMetrics.of_numbers({"loss": value, "rewardMean": 0.5}) == RunMetrics(reward_mean=0.5)


@pytest.mark.parametrize(("value", "kept"), [(400.0, 400), (12.5, None), (-1, None), (2**31, None)])
def test_a_count_is_a_count(value: float, kept: int | None) -> None:
    assert RunMetrics.of_numbers({"evalAccuracyN": value}).eval_accuracy_n == kept


def test_numbers_are_the_inverse() -> None:
    numbers = {"rewardMean": 0.5, "evalStep": 4, "loss": -0.25}
    assert RunMetrics.of_numbers(numbers).numbers() == numbers
