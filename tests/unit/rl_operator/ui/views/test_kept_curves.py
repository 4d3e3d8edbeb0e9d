"""Curves of which only the kept history is left."""

import math

from rl_operator.ui.views.kept_curves import kept_tables

POINTS = [
    {"step": 1, "rewardMean": 0.5, "evalAccuracy": 0.4, "loss": -0.1},
    {"step": 3, "rewardMean": 0.6, "evalAccuracy": 0.4},
    {"step": 5, "rewardMean": 0.7, "evalAccuracy": 0.8, "staleness": 1.0},
]


def test_columns_of_steps() -> None:
    steps, times, columns = kept_tables(POINTS)["steps"]
    assert (steps, columns["reward"], columns["loss"][0]) == ([1, 3, 5], [0.5, 0.6, 0.7], -0.1)
    assert math.isnan(columns["loss"][1])
    assert all(map(math.isnan, times))


def test_an_evaluation_is_where_the_figure_changes() -> None:
    steps, _, columns = kept_tables(POINTS)["evaluations"]
    assert (steps, columns) == ([1, 5], {"held_out": [0.4, 0.8]})


def test_nothing_is_kept() -> None:
    assert kept_tables([])["steps"] == ([], [], {"reward": [], "loss": [], "staleness": []})
