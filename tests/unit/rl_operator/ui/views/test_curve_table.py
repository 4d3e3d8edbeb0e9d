"""What each curve is computed from, and that charts show what there is."""

import math

import pytest

from rl_operator.ui.views.curve_table import CHARTS, OF_EVALUATION, OF_STEP, kept_tables

STEP = {
    "reward/mean": 0.6, "reward/std": 0.5, "reward/min": 0.2, "reward/max": 1.0,
    "logprobs/mean": -0.25, "batch/trained_tokens": 90.0, "batch/trained_sequences": 30.0, "time/waiting": 2.0,
    "staleness/allowed": 3.0, "batch/clipped_fraction": 0.1, "batch/masked_fraction": 0.2, "cost/total": 1.5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("reward", 0.6),
        ("reward_low", 0.2),  # 0.1 is below the lowest reward
        ("reward_high", 1.0),
        ("entropy", 0.25),
        ("length", 3.0),
        ("waiting", 2.0),
        ("staleness_allowed", 3.0),
        ("clipped", 0.1),
        ("masked", 0.2),
        ("cost", 1.5),
        ("kl", None),
        ("grad_norm", None),
    ],
)
def test_figures_of_a_step(figure: str, value: float | None) -> None:
    assert OF_STEP[figure](STEP) == value


@pytest.mark.parametrize(
    ("figure", "metrics"),
    [
        ("length", {"batch/trained_tokens": 0.0, "batch/trained_sequences": 0.0}),
        ("entropy", {"logprobs/mean": None}),
        ("reward_low", {"reward/mean": 0.5}),
        ("reward_high", {}),
    ],
)
def test_what_is_missing_is_not_a_number(figure: str, metrics: dict[str, float | None]) -> None:
    assert OF_STEP[figure](metrics) is None


def test_a_band_without_limits_is_one_deviation() -> None:
    metrics = {"reward/mean": 0.5, "reward/std": 1.0}
    assert (OF_STEP["reward_low"](metrics), OF_STEP["reward_high"](metrics)) == (-0.5, 1.5)


@pytest.mark.parametrize("prefix", ["", "digits_"])
def test_held_out_may_have_the_name_of_its_environment(prefix: str) -> None:
    metrics = {f"{prefix}eval/percent_correct{end}": value for end, value in (("", 0.5), ("_low", 0.4), ("_high", 0.6))}
    assert [OF_EVALUATION[name](metrics) for name in ("held_out", "held_out_low", "held_out_high")] == [0.5, 0.4, 0.6]
    assert OF_EVALUATION["held_out"]({"eval/n": 5.0}) is None


def test_charts_name_columns_that_there_are() -> None:
    known = {"steps": OF_STEP.keys(), "evaluations": OF_EVALUATION.keys() | {"baseline"}}
    for chart in CHARTS:
        named = {column for line in chart.lines for column in (line.column, line.low, line.high) if column}
        assert named <= known[chart.table], chart.name
    assert len({chart.name for chart in CHARTS}) == len(CHARTS)


def test_lines_of_a_chart_can_be_told_apart_without_color() -> None:
    for chart in CHARTS:
        assert chart.stacked or len({line.dash for line in chart.lines}) == len(chart.lines), chart.name


def test_what_newer_trainers_report_themselves_wins() -> None:
    newer = STEP | {"train/entropy": 0.75, "length/mean": 12.0, "groups/mixed": 0.5, "train/grad_norm": 0.1}
    assert [OF_STEP[name](newer) for name in ("entropy", "length", "mixed", "grad_norm")] == [0.75, 12.0, 0.5, 0.1]


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
