"""The record of attempts: fruitless ones, pauses, and that each is recorded once."""

from dataclasses import replace
from datetime import timedelta

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

from rl_operator.api.status_fields import Attempt
from rl_operator.status.attempt.attempt_fate import Ending, Fate
from rl_operator.status.attempt.attempts import KEPT_ATTEMPTS, fruitless, next_attempt_due, no_further, with_attempt

LOSS = Ending(Fate.INFRASTRUCTURE, "Evicted")
EVICTED = make_pod(ready(), terminated(137), phase="Failed", reason="Evicted")


def attempts(*steps: int | tuple[int, int], first: int = 1, stopped: int | None = None) -> tuple[Attempt, ...]:
    """Attempts that ended with so many steps (from 0, or from the first of two); `stopped` was stopped on request."""
    spans = [step if isinstance(step, tuple) else (0, step) for step in steps]
    return tuple(
        Attempt(
            attempt=n,
            pod=POD,
            ended=ENDED,
            reason="Stopped" if n == stopped else "Evicted",
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


def test_an_attempt_is_recorded_once_and_five_are_kept() -> None:
    failed = make_pod(ready(), terminated(1, failed_result("internal", "bug")), phase="Failed")
    record = [attempt.to_wire() for attempt in attempts(1, 2, 3, 4, 5)]
    view = make_view({**RUNNING, "attempt": 6, "attempts": record}, pod=failed)
    after = with_attempt(view, LOSS)
    assert [(attempt.attempt, attempt.steps) for attempt in after][-2:] == [(5, 5), (6, 7)]
    assert len(after) == KEPT_ATTEMPTS
    status = view.run.status.with_changes(attempts=after)
    assert with_attempt(replace(view, run=view.run.with_changes(status=status)), LOSS) == after
