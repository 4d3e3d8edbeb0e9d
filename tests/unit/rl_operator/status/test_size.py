"""A status stays small: the usual one, and the largest possible one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.status.builders import (
    CREATED,
    ENDED,
    RUNNING,
    STARTED,
    TRAINING,
    ended_pod,
    failed_result,
    make_pod,
    make_view,
    result,
    status_of,
    terminated,
    waiting,
)

from rl_contract.trainer_messages import MOST_FIGURES
from rl_operator.api.hints import FROZEN
from rl_operator.api.refusal import Refusal
from rl_operator.api.status_fields import RunStatus
from rl_operator.status.attempt.view import View
from rl_operator.status.observed.observation import ObservedTrainer
from rl_operator.status.size import AT_THE_END, WHILE_IT_LIVES, fit_size, size_of

METRICS = {
    "rolloutReward": 0.7123,
    "trainAccuracy": 0.8123,
    "loss": -0.01234,
    "logprobGap": 2.123e-06,
    "staleness": 0.5123,
    "heldOut": {"value": 0.8123, "low": 0.7123, "high": 0.9123, "samples": 256, "step": 123_456, "temperature": 1.0},
    "baseline": {"value": 0.1123, "low": 0.0812, "high": 0.1923, "samples": 256, "step": 0, "temperature": 1.0},
}
TRAINER = ObservedTrainer.model_validate(
    {
        "phase": "training",
        "step": 1912,
        "totalSteps": 2500,
        "secondsPerStep": 12.512,
        "checkpoint": {
            "step": 1900,
            "statePath": "tinker://0a1b2c3d-1111-4222-8333-444455556666/weights/001900",
            "expiresAt": "2026-06-01T00:00:00Z",
        },
        "best": {
            "step": 1850,
            "heldOut": {"value": 0.8323, "low": 0.7323, "high": 0.9323},
            "statePath": "tinker://0a1b2c3d-1111-4222-8333-444455556666/weights/001850",
            "samplerPath": "tinker://0a1b2c3d-1111-4222-8333-444455556666/sampler_weights/001850",
            "expiresAt": "2026-06-01T00:00:00Z",
        },
        "metrics": METRICS,
        "wandb": {
            "state": "online",
            "url": "https://wandb.ai/some-entity/some-project/runs/rl-0a1b2c3d",
            "runId": "rl-0a1b2c3d",
        },
    }
)
USUAL: dict[str, Any] = {
    **RUNNING,
    "history": [{"step": 1 + 250 * n, "rolloutReward": 0.1234} for n in range(10)],
    "frozen": {"config": "0a1b2c3d", "trainer": "0a1b2c3d"},
}
NAME = "x" * 52
LARGEST: dict[str, Any] = {
    **USUAL,
    "attempt": 13,
    "podName": f"{NAME}-0a1b2-13",
    "configMapName": f"{NAME}-0a1b2c3d",
    "historyName": f"{NAME}-0a1b2-history",
    "failedAttempts": 3,
    "attempts": [
        {
            "attempt": number,
            "pod": f"{NAME}-0a1b2-{number}",
            "started": CREATED,
            "ended": ENDED,
            "reason": "ProgressDeadlineExceeded",
            "steps": 1900 + number,
        }
        for number in range(8, 13)
    ],
    "failure": {"reason": "OOMKilled", "container": "environment", "exitCode": 137, "message": "m" * 300},
}
EDITED = tuple(Refusal(code="FrozenField", field=f"spec.{name}", hint=FROZEN) for name in ("config", "trainer"))
LONG = {"waiting": "w" * 400, "warnings": ("v" * 400, "ü" * 400)}


def test_the_usual_status_of_a_training_run() -> None:
    assert size_of(status_of(make_view(USUAL, pod=TRAINING, trainer=TRAINER))) < WHILE_IT_LIVES


LIVING = {
    "training": make_view(LARGEST, pod=TRAINING, trainer=TRAINER.with_changes(**LONG)),
    "training, edited": make_view(LARGEST, pod=TRAINING, trainer=TRAINER.with_changes(**LONG), refusals=EDITED),
    "starting": make_view(
        {**LARGEST, "phase": "Starting", "conditions": STARTED["conditions"]},
        pod=make_pod(waiting("ImagePullBackOff", "p" * 4000), waiting(), waiting()),
    ),
    "backing off": make_view(
        {**LARGEST, "failedAttempts": 1}, pod=ended_pod(terminated(1, failed_result("internal", "e" * 900)))
    ),
    "late": make_view(LARGEST, pod=TRAINING, trainer=TRAINER.with_changes(**LONG), spec={"progressDeadlineSeconds": 1}),
}


@pytest.mark.parametrize("view", LIVING.values(), ids=LIVING)
def test_the_largest_status_of_an_unfinished_run(view: View) -> None:
    """Its five attempts alone are more than half of what a run may say; names have all the characters there are."""
    status = status_of(view)
    assert not status.finished
    assert size_of(status) <= AT_THE_END
    assert len(status.attempts) == 5


ENDS = {
    "failed": terminated(1, failed_result("internal", "e" * 900, metrics=METRICS)),
    "out of memory": terminated(137, result(outcome="running", metrics=METRICS), "OOMKilled"),
    "succeeded": terminated(0, result(metrics=METRICS)),
}


def largest_end(trainer: dict[str, Any]) -> RunStatus:
    """The largest final status of a run whose trainer ended in this way."""
    before = status_of(make_view(LARGEST, pod=TRAINING, trainer=TRAINER.with_changes(**LONG))).to_wire()
    pod = ended_pod(trainer)
    return status_of(make_view(before, pod=pod, spec={"backoffLimit": 0}))


@pytest.mark.parametrize("trainer", ENDS.values(), ids=ENDS)
def test_the_largest_status_at_the_end(trainer: dict[str, Any]) -> None:
    status = largest_end(trainer)
    assert status.finished
    assert size_of(status) <= AT_THE_END


@given(st.lists(st.text(max_size=2000), min_size=3, max_size=3))
def test_refusals_of_any_text_fit(texts: list[str]) -> None:
    refusals = tuple(
        Refusal(code="UnknownField", field=f"spec.config.f{n}", allowed=[text] * 9, hint=text)
        for n, text in enumerate(texts)
    )
    status = status_of(make_view(refusals=refusals))
    assert size_of(status) <= AT_THE_END
    assert len(status.refusals) == 3


def test_the_figures_of_an_evaluation_are_bounded_and_cost_the_status_nothing() -> None:
    row = {"value": 0.1234, "low": 0.1234, "high": 0.1234, "samples": 123_456}
    rows = [{"metric": f"eval/{number:064}", **row} for number in range(2 * MOST_FIGURES)]
    told = {"step": 123_456, "figures": rows, "more": 300}
    trainer = ObservedTrainer.model_validate(
        {"evaluation": told, "metrics": {"heldOut": {"value": 0.5, "step": 123_456}}}
    )
    without, status = (status_of(make_view(LARGEST, pod=TRAINING, trainer=each)) for each in
                       (trainer.with_changes(evaluation=None), trainer))  # fmt: skip
    assert (len(status.evaluation.figures), status.evaluation.more) == (MOST_FIGURES, 300 + MOST_FIGURES)
    assert size_of(status) - size_of(without) < WHILE_IT_LIVES + 512
    assert status.with_changes(evaluation=None) == without


def test_a_status_that_fits_is_unchanged() -> None:
    status = status_of(make_view(USUAL, pod=TRAINING, trainer=TRAINER))
    assert fit_size(status) is status


def test_a_deadline_keeps_its_cause_whatever_is_cut() -> None:
    """The final report relies on `message`, which is never cut for size."""
    view = make_view(LARGEST, pod=TRAINING, trainer=TRAINER, spec={"progressDeadlineSeconds": 1})
    status = status_of(view)
    assert "Last seen: Training: step 1912 of 2500." in status.message
