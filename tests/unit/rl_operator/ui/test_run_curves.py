"""The points of a run's curves: what a page gets, and what it gets when it has some already."""

import math
from typing import Any

import pytest
from tests.unit.rl_operator.rollouts.made_rollouts import MemorySource, frame, step
from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import ForbiddenError, PodNeededError
from rl_operator.rollouts.rollout_source import RolloutSource
from rl_operator.ui.run_curves import CHARTS, EVERYTHING, KEPT, OF_EVALUATION, OF_STEP, CurveCache, kept_tables

STEP = {
    "reward/mean": 0.6, "reward/std": 0.5, "reward/min": 0.2, "reward/max": 1.0, "env/reward_mean": 0.7,
    "train/entropy": 0.25, "length/mean": 3.0, "time/waiting": 2.0,
    "staleness/allowed": 3.0, "batch/clipped_fraction": 0.1, "cost/total": 1.5, "items/trained": 8.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("batch_reward", 0.6),
        ("batch_reward_low", 0.2),  # 0.1 is below the lowest reward
        ("batch_reward_high", 1.0),
        ("rollout_reward", 0.7),
        ("entropy", 0.25),
        ("length", 3.0),
        ("waiting", 2.0),
        ("staleness_allowed", 3.0),
        ("clipped", 0.1),
        ("cost", 1.5),
        ("items_trained", 8.0),
        ("kl", None),
        ("grad_norm", None),
    ],
)
def test_figures_of_a_step(figure: str, value: float | None) -> None:
    assert OF_STEP[figure](STEP) == value


@pytest.mark.parametrize(
    ("figure", "metrics"),
    [
        ("length", {"length/mean": None}),
        ("batch_reward_low", {"reward/mean": 0.5}),
        ("batch_reward_high", {}),
    ],
)
def test_what_is_missing_is_not_a_number(figure: str, metrics: dict[str, float | None]) -> None:
    assert OF_STEP[figure](metrics) is None


def test_a_band_without_limits_is_one_deviation() -> None:
    metrics = {"reward/mean": 0.5, "reward/std": 1.0}
    assert (OF_STEP["batch_reward_low"](metrics), OF_STEP["batch_reward_high"](metrics)) == (-0.5, 1.5)


@pytest.mark.parametrize("prefix", ["", "digits_"])
def test_held_out_may_have_the_name_of_its_environment(prefix: str) -> None:
    metrics = {f"{prefix}eval/percent_correct{end}": value for end, value in (("", 0.5), ("_low", 0.4), ("_high", 0.6))}
    assert [OF_EVALUATION[name](metrics) for name in ("held_out", "held_out_low", "held_out_high")] == [0.5, 0.4, 0.6]
    assert OF_EVALUATION["held_out"]({"eval/n": 5.0}) is None


def test_charts_name_columns_that_there_are() -> None:
    known = {"steps": OF_STEP.keys() | KEPT.keys(), "evaluations": OF_EVALUATION.keys() | {"baseline"}}
    for chart in CHARTS:
        named = {column for line in chart.lines for column in (line.column, line.low, line.high) if column}
        assert named <= known[chart.table], chart.name
    assert len({chart.name for chart in CHARTS}) == len(CHARTS)


def test_lines_of_a_chart_can_be_told_apart_without_color() -> None:
    for chart in CHARTS:
        assert chart.stacked or len({line.dash for line in chart.lines}) == len(chart.lines), chart.name


POINTS = [
    {"step": 1, "rolloutReward": 0.5, "heldOut": 0.4, "loss": -0.1},
    {"step": 3, "rolloutReward": 0.6, "heldOut": 0.4},
    {"step": 5, "rolloutReward": 0.7, "heldOut": 0.8, "staleness": 1.0},
]


def test_columns_of_steps() -> None:
    steps, times, columns = kept_tables(POINTS)["steps"]
    assert (steps, columns["rollout_reward"], columns["loss"][0]) == ([1, 3, 5], [0.5, 0.6, 0.7], -0.1)
    assert math.isnan(columns["loss"][1])
    assert all(map(math.isnan, times))


def test_an_evaluation_is_where_the_figure_changes() -> None:
    steps, _, columns = kept_tables(POINTS)["evaluations"]
    assert (steps, columns) == ([1, 5], {"held_out": [0.4, 0.8]})


def test_nothing_is_kept() -> None:
    assert kept_tables([])["steps"] == ([], [], {"batch_reward": [], "rollout_reward": [], "loss": [], "staleness": []})


START = "2026-01-01T00:00:00Z"


class Kept(MemoryTarget):
    """With rollout files; None: nobody may read them."""

    def __init__(self, source: MemorySource | None, *, needs_pod: bool = False) -> None:
        super().__init__()
        self.source, self.needs_pod = source, needs_pod

    def rollouts(self, run: TrainingRun, *, may_start: bool = True) -> RolloutSource:
        if self.needs_pod and not may_start:
            raise PodNeededError("the trainer has ended")
        if self.source is None:
            raise ForbiddenError(f"you may not read the rollouts of {run.metadata.name}")
        return self.source


def run_of(**status: Any) -> TrainingRun:
    return parsed(run_manifest(**{"startTime": START, **status}))


def trained(number: int, attempt: int = 1) -> dict[str, Any]:
    return step(number, {}, attempt=attempt, **{"reward/mean": number / 10})


def evaluated(number: int, value: float) -> dict[str, Any]:
    return {"record": "evaluation", "step": number, "time": 1.0, "metrics": {"eval/percent_correct": value}}


def test_a_page_gets_what_it_lacks() -> None:
    source = MemorySource({"metrics-1.jsonl.zst": frame(evaluated(0, 0.4), trained(1), trained(2))})
    target, cache, run = Kept(source), CurveCache(), run_of()
    first = cache.points(target, run, EVERYTHING, 0)
    assert (first["whole"], first["attempt"], first["note"]) == (True, 1, "")
    assert first["tables"]["steps"]["step"] == [1, 2]
    assert first["tables"]["evaluations"]["columns"]["baseline"] == [0.4]
    assert {chart.name for chart in first["charts"]} >= {"reward", "held-out", "seconds"}

    source.files["metrics-1.jsonl.zst"] += frame(trained(3))
    more = cache.points(target, run, 2, 1)
    assert (more["whole"], "charts" in more) == (False, False)
    assert (more["tables"]["steps"]["step"], more["tables"]["steps"]["columns"]["batch_reward"]) == ([3], [0.3])
    assert more["tables"]["evaluations"]["step"] == [0], "evaluations come whole"

    reads = len(source.reads)
    assert cache.points(target, run, 3, 1)["tables"]["steps"]["step"] == []
    assert len(source.reads) == reads, "no file has grown"


def test_a_new_attempt_replaces_everything() -> None:
    source = MemorySource({"metrics-1.jsonl.zst": frame(trained(1), trained(2), trained(3))})
    target, cache = Kept(source), CurveCache()
    cache.points(target, run_of(), EVERYTHING, 0)
    source.files["metrics-2.jsonl.zst"] = frame(trained(2, 2))
    found = cache.points(target, run_of(), 3, 1)
    assert (found["whole"], found["attempt"], found["tables"]["steps"]["step"]) == (True, 2, [1, 2])


def test_the_baseline_is_the_status_figure_if_it_is_known() -> None:
    source = MemorySource({"metrics-1.jsonl.zst": frame(trained(1), evaluated(1, 0.5))})
    found = CurveCache().points(Kept(source), run_of(metrics={"baseline": {"value": 0.25}}), EVERYTHING, 0)
    assert found["tables"]["evaluations"]["columns"]["baseline"] == [0.25]


@pytest.mark.parametrize(
    ("source", "status", "said"),
    [
        (None, {}, "you may not read the rollouts of sorting"),
        (MemorySource({}), {"phase": "Succeeded"}, "an older version"),
        (MemorySource({}), {"phase": "Running"}, "no step is trained"),
        (MemorySource({}), {"startTime": None}, "has not started"),
    ],
)
def test_without_files_the_history_of_the_status_is_shown(
    source: MemorySource | None, status: dict[str, Any], said: str
) -> None:
    history = [{"step": 1, "rolloutReward": 0.5}, {"step": 2, "rolloutReward": 0.75}]
    found = CurveCache().points(Kept(source), run_of(history=history, **status), EVERYTHING, 0)
    assert said in found["note"]
    assert found["tables"]["steps"]["columns"]["rollout_reward"] == [0.5, 0.75]
    assert all(map(math.isnan, found["tables"]["steps"]["columns"]["loss"]))


@pytest.mark.parametrize(
    ("needs_pod", "asked", "costly"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_no_pod_is_started_unasked(needs_pod: bool, asked: bool, costly: bool) -> None:
    source = MemorySource({"metrics-1.jsonl.zst": frame(trained(1), trained(2))})
    run = run_of(phase="Succeeded", history=[{"step": 2, "rolloutReward": 0.75}])
    found = CurveCache().points(Kept(source, needs_pod=needs_pod), run, EVERYTHING, 0, at_any_cost=asked)
    assert found["costly"] is costly
    assert found["tables"]["steps"]["step"] == ([2] if costly else [1, 2])
    assert bool(source.reads) is not costly


def test_damaged_files_are_said() -> None:
    source = MemorySource({"metrics-1.jsonl.zst": frame(trained(1), b"garbage\n")})
    assert CurveCache().points(Kept(source), run_of(), EVERYTHING, 0)["note"].startswith("1 lines of metrics")


def test_a_file_that_vanishes_costs_its_points_only() -> None:
    source = MemorySource({"metrics-1.jsonl.zst": frame(trained(1)), "metrics-2.jsonl.zst": frame(trained(2, 2))})
    source.gone.add("metrics-2.jsonl.zst")
    assert CurveCache().points(Kept(source), run_of(), EVERYTHING, 0)["tables"]["steps"]["step"] == [1]


def test_few_runs_are_kept() -> None:
    cache = CurveCache(most=2)
    first = cache.of("a")
    assert cache.of("a") is first
    cache.of("b")
    cache.of("c")
    assert cache.of("a") is not first
