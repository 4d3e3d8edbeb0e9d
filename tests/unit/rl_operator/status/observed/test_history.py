"""One bounded history over all attempts, whatever a trainer answers."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.status.builders import make_run
from tests.unit.rl_operator.status.builders import result as result_text

from rl_contract.status_metrics import MAX_POINTS, RunMetrics
from rl_contract.trainer_messages import TrainerResult
from rl_operator.api.status_fields import Progress, RunStatus
from rl_operator.status.observed.history import Point, extended, history_map_name, joined, read_points, rewards, thinned


def points(*steps: int, reward: float = 0.5) -> tuple[Point, ...]:
    return tuple({"step": step, "rolloutReward": reward} for step in steps)


def steps(history: tuple[Point, ...]) -> list[float]:
    return [point["step"] for point in history]


def trained(steps_trained: int, **metrics: float) -> TrainerResult:
    return TrainerResult.model_validate(json.loads(result_text(stepsTrained=steps_trained, metrics=metrics)))


def test_a_point_is_its_step_and_metrics_in_four_digits() -> None:
    raw = {
        "step": 3,
        "rolloutReward": 0.712345,
        "train/loss": 1.0,
        "loss": -0.1,
        "logprobGap": 2.00001e-6,
        "waiting": 3,
    }
    assert read_points({"points": [raw]}) == ({"step": 3, "rolloutReward": 0.7123, "loss": -0.1, "logprobGap": 2e-6},)


NONSENSE: tuple[Any, ...] = (
    None, [], "points", {}, {"points": {}}, {"points": ["x", None, 3]}, {"points": [{"rolloutReward": 1}]},
    {"points": [{"step": "3"}, {"step": -1}, {"step": True}, {"step": 1.5}]},
)  # fmt: skip


@pytest.mark.parametrize("document", NONSENSE, ids=range(len(NONSENSE)))
def test_invalid_answers_have_no_points(document: Any) -> None:
    assert read_points(document) == ()


def test_a_metric_that_is_not_a_number_is_left_out() -> None:
    odd = {"step": 1, "rolloutReward": "NaN", "loss": None, "staleness": 10**400, "trainAccuracy": True}
    assert read_points({"points": [odd]}) == ({"step": 1},)


def test_the_next_attempt_continues_from_its_checkpoint() -> None:
    """What the first one trained after it was lost, and is trained again."""
    history = joined(points(1, 2, 3, 4, 5), points(4, 5, 6, reward=0.9))
    assert steps(history) == [1, 2, 3, 4, 5, 6]
    assert rewards(history) == [0.5, 0.5, 0.5, 0.9, 0.9, 0.9]
    assert joined(history, ()) == history
    assert joined(history, history) == history


def test_a_result_adds_what_followed_the_last_answer() -> None:
    new = RunStatus()
    assert extended(points(1, 2), trained(4, rolloutReward=0.91234), new)[-1] == {"step": 4, "rolloutReward": 0.9123}
    assert extended(points(1, 2), trained(2, rolloutReward=0.9), new) == points(1, 2)
    assert steps(extended(points(8, 12), trained(10), new)) == [8, 12], "a killed trainer's result is of its checkpoint"
    assert steps(extended(points(1), None, new)) == [1]


def test_the_last_point_has_the_reward_of_the_status() -> None:
    """It followed what environments reported after the step; the points were asked for when the step was new."""
    shown = RunStatus(metrics=RunMetrics(rollout_reward=0.9), progress=Progress(step=2, total_steps=4, percent=50))
    assert extended(points(1, 2), None, shown) == (*points(1), *points(2, reward=0.9))
    assert extended(points(1, 2), trained(1), shown) == (*points(1), *points(2, reward=0.9))
    assert extended(points(1), None, shown) == points(1)
    assert extended((), None, shown) == ()


def test_a_long_history_keeps_the_whole_run_and_its_end() -> None:
    kept = thinned(points(*range(1, 3_002)))
    assert MAX_POINTS / 2 <= len(kept) <= MAX_POINTS
    assert steps(kept)[-1] == 3_001
    assert {late - early for early, late in pairwise(steps(kept)[:-1])} == {8}


@given(st.lists(st.lists(st.integers(0, 5_000), unique=True, max_size=700), max_size=5))
def test_after_any_attempts_the_history_advances_and_stays_small(attempts: list[list[int]]) -> None:
    history: tuple[Point, ...] = ()
    for attempt in attempts:
        history = thinned(joined(history, read_points({"points": [{"step": step} for step in attempt]})))
        assert len(history) <= MAX_POINTS
        assert steps(history) == sorted(set(steps(history)))
    if attempts and attempts[-1]:
        assert steps(history)[-1] == max(attempts[-1])


def test_the_name_carries_the_uid() -> None:
    run = make_run().with_changes(metadata=make_run().metadata.with_changes(uid="0a1b2c3d-4e5f"))
    assert history_map_name(run) == "sorting-0a1b2-history"
