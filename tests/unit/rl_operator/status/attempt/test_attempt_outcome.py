"""What a run that is over says of its weights."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.status.builders import (
    ENDED,
    NOW,
    POD,
    RUNNING,
    STARTED,
    failed_result,
    make_pod,
    make_view,
    ready,
    terminated,
)

from rl_contract.status_metrics import EvaluatedFigure, RunMetrics
from rl_contract.trainer_messages import BestCheckpoint
from rl_operator.api.status_fields import Attempt, Progress
from rl_operator.status.attempt.attempt_fate import BACKEND_UNREACHABLE, Ending, Fate
from rl_operator.status.attempt.attempt_outcome import (
    KEPT_ATTEMPTS,
    done_sentence,
    fruitless,
    next_attempt_due,
    next_run_sentence,
    no_further,
    success_sentence,
    with_attempt,
)

DONE = "All 40 steps are trained and the weights are saved."


def best(accuracy: float, low: float) -> BestCheckpoint:
    return BestCheckpoint(
        step=5,
        held_out=EvaluatedFigure(value=accuracy, low=low),
        state_path="tinker://r/w",
        sampler_path="tinker://r/s",
    )


def metrics(**known: Any) -> RunMetrics:
    return RunMetrics(**known)


@pytest.mark.parametrize(
    ("last", "of_best", "said"),
    [
        (
            metrics(held_out=EvaluatedFigure(value=0.18, high=0.22, step=40)),
            best(0.56, 0.5),
            "step 5 are better: held-out 0.56, and 0.18 after step 40.",
        ),
        (
            metrics(held_out=EvaluatedFigure(value=0.18, high=0.22)),
            best(0.56, 0.5),
            "held-out 0.56, and 0.18 in the last evaluation.",
        ),
        (metrics(held_out=EvaluatedFigure(value=0.5, high=0.55, step=40)), best(0.56, 0.5), ""),
        (metrics(), best(0.56, 0.5), ""),
        (None, None, ""),
    ],
    ids=["worse", "worse, of an unknown step", "maybe by chance", "not evaluated", "nothing is known"],
)
def test_a_success_names_better_weights(last: RunMetrics | None, of_best: BestCheckpoint | None, said: str) -> None:
    sentence = success_sentence(done_sentence(Progress(step=40, total_steps=40, percent=100)), last, of_best)
    assert sentence.startswith(DONE)
    assert said in sentence
    assert (sentence == DONE) is (said == "")


def test_a_success_before_the_last_step_says_why() -> None:
    why = "held-out 0.97 of step 38 reached trainer.early_stopping.stop_at 0.95"
    done = done_sentence(Progress(step=40, total_steps=200, percent=20, stopped_early=why))
    assert success_sentence(done, None, None) == (
        "Stopped early at step 40: held-out 0.97 of step 38 reached trainer.early_stopping.stop_at 0.95."
        " The weights are saved."
    )


@pytest.mark.parametrize(
    ("first", "of_best", "said"),
    [
        (0.5, best(0.56, 0.5), "Or start from the best weights, of step 5 (held-out 0.56; status.best)."),
        (0.59, best(0.0, 0.0), "Start a new run from the beginning."),
        (0.59, None, "Start a new run from the beginning."),
        (None, best(0.56, 0.5), "Start a new run from the beginning."),
    ],
    ids=["better than the first", "worse than the first", "none", "without a first"],
)
def test_weights_that_diverged_are_not_recommended(first: float | None, of_best: Any, said: str) -> None:
    assert (
        next_run_sentence(
            "Diverged", 5, metrics(baseline=None if first is None else EvaluatedFigure(value=first)), of_best
        )
        == said
    )


def test_other_failures_are_continued_from_the_checkpoint() -> None:
    assert "The checkpoint of step 5 is kept" in next_run_sentence("TrainerFailed", 5, None, None)
    assert next_run_sentence("TrainerFailed", None, None, None) == "Fix that and start a new run."


LOSS = Ending(Fate.INFRASTRUCTURE, "Evicted")
EVICTED = make_pod(ready(), terminated(137), phase="Failed", reason="Evicted")


def attempts(
    *steps: int | tuple[int, int], first: int = 1, stopped: int | None = None, away: tuple[int, ...] = ()
) -> tuple[Attempt, ...]:
    """Attempts that ended with so many steps (from 0, or from the first of two); `stopped` was stopped on request, and
    the backend was `away` in others.
    """
    spans = [step if isinstance(step, tuple) else (0, step) for step in steps]
    return tuple(
        Attempt(
            attempt=n,
            pod=POD,
            ended=ENDED,
            reason="Stopped" if n == stopped else BACKEND_UNREACHABLE if n in away else "Evicted",
            from_step=begun,
            steps=ended,
        )
        for n, (begun, ended) in enumerate(spans, first)
    )


ROWS = {
    "none yet": (attempts(), 0),
    "the first trained nothing": (attempts(0), 1),
    "the first trained something": (attempts(7), 0),
    "and the next two nothing": (attempts(7, 7, 7), 2),
    "progress ends the row": (attempts(0, 0, 3, 3), 1),
    "so does a stop": (attempts(7, 7, 7, stopped=2), 1),
    "what is not kept is not judged": (attempts(7, 7, 7, first=4), 2),
    "steps up to where one before it was are not new": (attempts(7, (5, 7), (5, 6)), 2),
    "after a lost checkpoint they are": (attempts(9, (5, 8), (0, 3)), 0),
    "but not twice": (attempts(9, (5, 8), (0, 3), (0, 3)), 1),
    "and a restart that trains nothing is none": (attempts(9, (5, 8), 0, 0), 3),
}


@pytest.mark.parametrize(("record", "length"), ROWS.values(), ids=ROWS)
def test_consecutive_attempts_without_a_new_step(record: tuple[Attempt, ...], length: int) -> None:
    assert fruitless(record) == length


@given(st.lists(st.integers(0, 3), max_size=8))
def test_fruitless_attempts_never_exceed_all_attempts(gains: list[int]) -> None:
    steps = [sum(gains[: n + 1]) for n in range(len(gains))]
    length = fruitless(attempts(*steps))
    assert length <= len(gains)
    assert all(gain == 0 for gain in gains[len(gains) - length :])


@pytest.mark.parametrize(
    ("steps", "seconds"), [((7,), 10), ((7, 7), 10), ((7, 7, 7), 20), ((7, 7, 7, 7), 40), ((7, 7, 7, 9), 10)]
)
def test_the_pause_doubles_while_nothing_new_is_trained(steps: tuple[int, ...], seconds: int) -> None:
    record = [attempt.to_wire() for attempt in attempts(*steps)]
    view = make_view({**STARTED, "attempt": len(steps), "attempts": record})
    assert next_attempt_due(view) == NOW - timedelta(seconds=30) + timedelta(seconds=seconds)


def test_a_loss_after_progress_is_never_the_last() -> None:
    """The pod of a lost node has no result: what was trained is known from before."""
    record = [attempt.to_wire() for attempt in attempts(100, 200, 300, 400, 450)]
    status = {**RUNNING, "attempt": 6, "attempts": record}
    progress = {"step": 500, "totalSteps": 900, "percent": 55}
    assert no_further(make_view({**status, "progress": progress}, pod=EVICTED), LOSS) is None
    assert no_further(make_view({**status, "progress": {**progress, "step": 450}}, pod=EVICTED), LOSS) is None


def test_the_fifth_fruitless_attempt_is_the_last() -> None:
    record = [attempt.to_wire() for attempt in attempts(7, 7, 7, 7, 7, first=2)]
    view = make_view({**RUNNING, "attempt": 7, "attempts": record}, pod=EVICTED)
    assert no_further(view, LOSS) == "5 attempts in a row trained no new step."


AWAY = Ending(Fate.INFRASTRUCTURE, BACKEND_UNREACHABLE)


@pytest.mark.parametrize(
    ("away", "ending"),
    [((2, 3, 4, 5, 6), AWAY), ((2, 3, 4, 5, 6), LOSS), ((4,), LOSS)],
    ids=["again and again", "before a loss", "once"],
)
def test_a_backend_that_is_away_fails_no_run(away: tuple[int, ...], ending: Ending) -> None:
    """The pauses grow all the same."""
    record = attempts(7, 7, 7, 7, 7, first=2, away=away)
    view = make_view({**RUNNING, "attempt": 7, "attempts": [each.to_wire() for each in record]}, pod=EVICTED)
    assert no_further(view, ending) is None
    assert fruitless(with_attempt(view, ending)) == 4


def test_an_attempt_is_recorded_once_and_five_are_kept() -> None:
    failed = make_pod(ready(), terminated(1, failed_result("internal", "bug")), phase="Failed")
    record = [attempt.to_wire() for attempt in attempts(1, 2, 3, 4, 5)]
    view = make_view({**RUNNING, "attempt": 6, "attempts": record}, pod=failed)
    after = with_attempt(view, LOSS)
    assert [(attempt.attempt, attempt.steps) for attempt in after][-2:] == [(5, 5), (6, 7)]
    assert len(after) == KEPT_ATTEMPTS
    status = view.run.status.with_changes(attempts=after)
    assert with_attempt(replace(view, run=view.run.with_changes(status=status)), LOSS) == after
