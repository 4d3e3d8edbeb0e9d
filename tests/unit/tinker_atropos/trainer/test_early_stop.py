"""When a run ends before its last step, and with which one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_atropos.run_configs import run_config

from rl_contract.status_metrics import EvaluatedFigure
from rl_contract.trainer_messages import BestCheckpoint, TrainerResult
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.errors import ConfigError
from tinker_atropos.result import ResultFile
from tinker_atropos.trainer.data.step_counts import StepCounts
from tinker_atropos.trainer.early_stop import EarlyStop, why_to_stop
from tinker_atropos.trainer.reporting.trainer_status import LiveStatus
from tinker_atropos.trainer.trainer_state import TrainerState

TOTAL = 200


def config_of(steps_per_eval: int = 10, **early_stopping: Any) -> RunConfig:
    return run_config({"total_steps": TOTAL, "steps_per_eval": steps_per_eval}, early_stopping=early_stopping)


def best(step: int, figure: float) -> BestCheckpoint:
    return BestCheckpoint(step=step, held_out=EvaluatedFigure(value=figure), state_path="state", sampler_path="sampler")


def early_stop(step: int, **early_stopping: Any) -> EarlyStop:
    state = TrainerState(
        StepCounts(TOTAL), LiveStatus(TOTAL), ResultFile(None, TrainerResult(outcome="running", total_steps=TOTAL))
    )
    state.progress.opened(step)
    return EarlyStop(state, config_of(**early_stopping))


REACHED = "held-out 0.97 of step 40 reached trainer.early_stopping.stop_at 0.95"
CASES = {
    "neither is asked for": ({}, 1.0, None, None),
    "at the target": (
        {"stop_at": 0.97}, 0.97, None,
        "held-out 0.97 of step 40 reached trainer.early_stopping.stop_at 0.97",
    ),
    "past the target": ({"stop_at": 0.95}, 0.97, None, REACHED),
    "below the target": ({"stop_at": 0.98}, 0.97, None, None),
    "past the target, and out of patience": ({"stop_at": 0.95, "patience": 1}, 0.97, best(10, 0.98), REACHED),
    "a new best": ({"patience": 1}, 0.97, best(10, 0.96), None),
    "the first figure": ({"patience": 1}, 0.97, None, None),
    "as good as the best is no new best": (
        {"patience": 3}, 0.97, best(10, 0.97),
        "no better held-out figure in 3 evaluations (trainer.early_stopping.patience 3) than 0.97 of step 10",
    ),
    "once": (
        {"patience": 1}, 0.9, best(30, 0.97),
        "no better held-out figure in 1 evaluation (trainer.early_stopping.patience 1) than 0.97 of step 30",
    ),
    "not often enough": ({"patience": 4}, 0.9, best(10, 0.97), None),
    "the best began late, so it is of a step in between": (
        {"patience": 2}, 0.9, best(23, 0.97),
        "no better held-out figure in 2 evaluations (trainer.early_stopping.patience 2) than 0.97 of step 23",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("early_stopping", "figure", "of_best", "reason"), CASES.values(), ids=CASES)
def test_why_a_run_ends(early_stopping, figure, of_best, reason) -> None:
    assert why_to_stop(figure, 40, of_best, config_of(**early_stopping)) == reason


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.integers(1, 5))
def test_an_attempt_that_continues_has_the_same_patience(figures, patience) -> None:
    """It knows only the best so far; whatever the attempt before it counted is lost."""
    counted, of_best, ended = 0, None, None
    for number, figure in enumerate(figures, 1):
        is_new = of_best is None or figure > of_best.held_out.value
        counted = 0 if is_new else counted + 1
        told = of_best and best(of_best.step, of_best.held_out.value)  # as it travels from attempt to attempt
        ended = why_to_stop(figure, 10 * number, told, config_of(patience=patience))
        assert (ended is not None) is (counted >= patience)
        of_best = best(10 * number, figure) if is_new else of_best
        if ended:
            break


async def test_the_newest_step_is_the_last_one() -> None:
    """The evaluation of step 40 is known while step 43 is trained."""
    stopping = early_stop(42, stop_at=0.95)
    assert not stopping.end_here()
    stopping.evaluated(40, EvaluatedFigure(value=0.97))
    assert stopping.request.asked
    stopping.state.progress.trained(43)
    assert stopping.end_here()
    state = stopping.state
    assert state.progress.total == 43
    assert (state.status.total_steps, state.status.stopped_early) == (TOTAL, REACHED)
    assert state.results.result.to_wire()["stoppedEarly"] == REACHED
    assert not stopping.end_here()


async def test_steps_that_are_replayed_are_trained_again_first() -> None:
    stopping = early_stop(42, stop_at=0.95)
    stopping.evaluated(40, EvaluatedFigure(value=0.97))
    stopping.state.progress.opened(25)  # the backend was lost
    assert not stopping.at_boundary
    assert not stopping.end_here()
    stopping.state.progress.trained(42)
    assert stopping.end_here()
    assert stopping.state.progress.total == 42


@pytest.mark.parametrize("step", [0, TOTAL])
async def test_what_is_known_before_the_first_and_after_the_last_step_ends_nothing(step) -> None:
    stopping = early_stop(42, stop_at=0.95)
    stopping.evaluated(step, EvaluatedFigure(value=0.97))
    assert not stopping.request.asked


async def test_the_time_left_is_that_of_the_end() -> None:
    stopping = early_stop(20, stop_at=0.95)
    status = stopping.state.status
    for step in range(21, 43):
        stopping.state.progress.trained(step)
        status.step_trained(step, 10.0, {})
    assert (status.time_left.seconds() or 0) > 1_000
    stopping.evaluated(40, EvaluatedFigure(value=0.97))
    assert stopping.end_here()
    assert status.time_left.seconds() == 0.0


@pytest.mark.parametrize(("name", "value"), [("stop_at", 0.5), ("patience", 2)])
def test_without_evaluations_it_is_refused(name, value) -> None:
    with pytest.raises(
        ConfigError,
        match=rf"tinker\.early_stopping\.{name} is {value:g}: the run has no evaluations .* steps_per_eval is 0",
    ):
        config_of(0, **{name: value})
