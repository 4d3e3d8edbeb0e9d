"""The deadlines: when they apply, what a missed one reports, and that nothing reverts a verdict."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import (
    CREATED,
    ENDED,
    NOW,
    POD,
    RUNNING,
    STARTED,
    TRAINING,
    disruption,
    failed_result,
    make_pod,
    make_view,
    ready,
    result,
    running,
    terminated,
    unscheduled_pod,
    waiting,
    written,
)

from rl_operator.api.names import QUEUE_NAME_LABEL
from rl_operator.status.attempt.view import QueuePosition, View
from rl_operator.status.derived_status import derive
from rl_operator.status.observed.observation import ObservedTrainer, PodObservation, format_time
from rl_operator.status.phase_and_action import Action, assess, decide, requeue_after
from rl_operator.status.text.phase_table import Situation

STARTING = make_pod(ready(), ready(), running())
HUNG = make_pod(ready(), running(), ready())
STOPPED = make_pod(
    terminated(0),
    terminated(0, result(outcome="stopped", stepsTrained=7)),
    terminated(0),
    phase="Failed",
    deleting=True,
)
EVICTED = make_pod(
    terminated(0),
    terminated(0, result(outcome="stopped", stepsTrained=7)),
    terminated(0),
    phase="Failed",
    deleting=True,
    conditions=[disruption("EvictionByEvictionAPI")],
)
START, PROGRESS, ACTIVE = (
    {"startDeadlineSeconds": 300},
    {"progressDeadlineSeconds": 300},
    {"activeDeadlineSeconds": 300},
)
STEPPED = ObservedTrainer(step=3, total_steps=40, last_step_at=format_time(NOW - timedelta(seconds=5)))
STUCK = ObservedTrainer(step=3, total_steps=40, last_step_at=CREATED, waiting="The backend does not answer.")

BEGUN = ObservedTrainer()
PAUSED = ObservedTrainer(
    step=3,
    total_steps=40,
    last_step_at=CREATED,
    pause={"cause": "BackendPaused", "since": CREATED, "reason": "short on capacity"},
)


def resumed(seconds: int) -> ObservedTrainer:
    """A trainer whose pause was over so long ago."""
    return PAUSED.with_changes(pause=None, resumed_at=format_time(NOW - timedelta(seconds=seconds)))


def between(reason: str) -> dict[str, Any]:
    record = {"attempt": 1, "pod": POD, "ended": ENDED, "reason": reason, "steps": 7}
    return {**STARTED, "phase": "Pending", "attempts": [record], "failure": {"reason": reason}}


REFUSED = ("CreationRefused", "Not created, and tried again: exceeded quota.")
PODLESS = {**STARTED, "attemptStartTime": CREATED}


LATE: dict[str, tuple[View, str, str]] = {
    "start": (make_view(STARTED, pod=STARTING, spec=START, trainer=BEGUN), "StartDeadlineExceeded", "environment"),
    "start: its trainer is not heard": (
        make_view(STARTED, pod=STARTING, spec=START, unheard=True),
        "StartDeadlineExceeded",
        "environment",
    ),
    "start: its pause is over for long": (
        make_view(STARTED, pod=STARTING, spec=START, trainer=resumed(300)),
        "StartDeadlineExceeded",
        "environment",
    ),
    "start: no node": (
        make_view(
            STARTED,
            pod=unscheduled_pod("Unschedulable", "0/3 nodes"),
            spec=START,
        ),
        "StartDeadlineExceeded",
        "0/3 nodes",
    ),
    "start: no image": (
        make_view(STARTED, pod=make_pod(waiting("ImagePullBackOff", "no such image"), waiting()), spec=START),
        "StartDeadlineExceeded",
        "no such image",
    ),
    "start: admitted long ago": (
        make_view({**STARTED, "admittedTime": CREATED}, pod=STARTING, spec=START, trainer=BEGUN),
        "StartDeadlineExceeded",
        "environment",
    ),
    "progress: no step yet": (
        make_view(RUNNING, pod=TRAINING, trainer=ObservedTrainer(total_steps=40), spec=PROGRESS),
        "ProgressDeadlineExceeded",
        "step 0 of 40",
    ),
    "progress: the backend does not answer": (
        make_view(RUNNING, pod=TRAINING, trainer=STUCK, spec=PROGRESS),
        "ProgressDeadlineExceeded",
        "The backend does not answer.",
    ),
    "progress: hung, its kubelet says": (
        make_view(RUNNING, pod=HUNG, spec=PROGRESS),
        "ProgressDeadlineExceeded",
        "Training.",
    ),
    "progress: its pause is over for long": (
        make_view(RUNNING, pod=TRAINING, trainer=resumed(300), spec=PROGRESS),
        "ProgressDeadlineExceeded",
        "step 3 of 40",
    ),
    "active, also during a pause": (
        make_view(RUNNING, pod=TRAINING, trainer=PAUSED, spec=ACTIVE),
        "ActiveDeadlineExceeded",
        "short on capacity",
    ),
    "active": (
        make_view(RUNNING, pod=TRAINING, trainer=STEPPED, spec=ACTIVE),
        "ActiveDeadlineExceeded",
        "step 3 of 40",
    ),
}

IN_TIME: dict[str, View] = {
    "paused while it starts": make_view(STARTED, pod=STARTING, spec=START, trainer=PAUSED),
    "its pause at the start was over a moment ago": make_view(STARTED, pod=STARTING, spec=START, trainer=resumed(299)),
    "its trainer, which may be paused, is about to be asked": make_view(STARTED, pod=STARTING, spec=START),
    "paused while it trains": make_view(RUNNING, pod=TRAINING, spec=PROGRESS, trainer=PAUSED),
    "its pause was over a moment ago": make_view(RUNNING, pod=TRAINING, spec=PROGRESS, trainer=resumed(299)),
    "starting": make_view(STARTED, pod=STARTING, spec={"startDeadlineSeconds": 601}),
    "no start deadline": make_view(STARTED, pod=STARTING, spec={"startDeadlineSeconds": None}),
    "admitted late": make_view(
        {**STARTED, "admittedTime": format_time(NOW - timedelta(seconds=10))}, pod=STARTING, spec=START
    ),
    "admitted while the operator was away": make_view(
        STARTED,
        pod=make_pod(
            ready(),
            ready(),
            running(),
            labels={QUEUE_NAME_LABEL: "team"},
            conditions=[{"type": "PodScheduled", "status": "True", "lastTransitionTime": ENDED}],
        ),
        spec=START,
    ),
    "training": make_view(RUNNING, pod=TRAINING, trainer=STEPPED, spec=PROGRESS),
    "not heard of since the operator started": make_view(RUNNING, pod=TRAINING, spec=PROGRESS),
    "not within reach": make_view(RUNNING, pod=TRAINING, trainer=STUCK, unreachable=True, spec=PROGRESS),
    "hung for a moment": make_view(
        RUNNING,
        pod=make_pod(
            ready(),
            running(),
            ready(),
            conditions=[{"type": "ContainersReady", "status": "False", "lastTransitionTime": ENDED}],
        ),
        spec=PROGRESS,
    ),
    "no pod yet": make_view(STARTED, spec=START),
    "between attempts": make_view(between("TrainerFailed"), spec={**START, **PROGRESS}),
    "stopped": make_view(between("Stopped"), spec={**ACTIVE, "suspend": True}),
}


@pytest.mark.parametrize(("view", "reason", "seen"), LATE.values(), ids=LATE)
def test_a_missed_one_ends_the_attempt_and_names_what_was_observed(view: View, reason: str, seen: str) -> None:
    assessment = assess(view)
    assert (assessment.situation, assessment.reason) == (Situation.STOPPING, reason)
    assert seen in assessment.message
    assert decide(written(view)) is Action.STOP
    over = written(view, pod=STOPPED)
    failed = assess(over)
    assert (failed.situation, failed.reason) == (Situation.FAILED, reason)
    assert seen in failed.message
    status = derive(over, failed)
    assert seen in status.failure.message
    assert (status.attempts[-1].reason, status.attempts[-1].steps) == (reason, 7)
    assert status.checkpoint is not None
    assert "The checkpoint of step 7 is kept" in failed.message


@pytest.mark.parametrize("view", IN_TIME.values(), ids=IN_TIME)
def test_one_that_has_not_passed_ends_nothing(view: View) -> None:
    assert assess(view).situation is not Situation.STOPPING
    assert decide(view) is not Action.STOP


def test_a_deadline_raised_too_late_changes_nothing() -> None:
    view = written(LATE["active"][0])
    spec = view.run.spec.with_changes(active_deadline_seconds=1_000_000)
    raised = replace(view, run=view.run.with_changes(spec=spec))
    assert decide(raised) is Action.STOP
    assert assess(replace(raised, pod=STOPPED)).reason == "ActiveDeadlineExceeded"


def test_a_clock_set_back_undoes_nothing() -> None:
    view = replace(written(LATE["progress: no step yet"][0]), now=NOW - timedelta(hours=1))
    assert decide(view) is Action.STOP
    assert assess(replace(view, pod=STOPPED)).reason == "ProgressDeadlineExceeded"


def test_a_lowered_deadline_applies_at_once() -> None:
    view = make_view(RUNNING, pod=TRAINING, trainer=STEPPED, spec={"activeDeadlineSeconds": 1})
    assert assess(view).reason == "ActiveDeadlineExceeded"


@pytest.mark.parametrize("pod", [EVICTED, STOPPED], ids=["evicted", "deleted"])
def test_a_pod_deleted_by_others_has_not_missed_a_deadline(pod: PodObservation) -> None:
    """It had trained for longer than the progress deadline, with a step every few seconds."""
    assert assess(make_view(RUNNING, pod=pod, spec=PROGRESS)).situation is Situation.WAITING


def test_success_at_the_last_moment_is_success() -> None:
    done = make_pod(terminated(0), terminated(0, result()), terminated(0), phase="Succeeded", deleting=True)
    assert assess(replace(written(LATE["active"][0]), pod=done)).situation is Situation.SUCCEEDED


def test_a_permanent_failure_comes_before_the_deadline() -> None:
    refused = terminated(3, failed_result("credentials", "401"))
    over = make_pod(terminated(0), refused, terminated(0), phase="Failed", deleting=True)
    assert assess(replace(written(LATE["start"][0]), pod=over)).reason == "CredentialsRefused"


def test_a_failure_while_saving_counts_as_the_deadline() -> None:
    crashed = terminated(1, failed_result("internal", "bug"))
    over = make_pod(terminated(0), crashed, terminated(0), phase="Failed", deleting=True)
    assert assess(replace(written(LATE["start"][0]), pod=over)).reason == "StartDeadlineExceeded"


def test_a_run_suspended_while_it_is_ended_has_failed() -> None:
    view = written(LATE["start"][0])
    suspended = replace(view, run=view.run.with_changes(spec=view.run.spec.with_changes(suspend=True)))
    assert assess(suspended).reason == "StartDeadlineExceeded"
    assert assess(replace(suspended, pod=STOPPED)).situation is Situation.FAILED


def test_a_run_that_is_late_while_stopping_is_stopped() -> None:
    view = make_view(RUNNING, pod=make_pod(running(), running(), deleting=True), spec={**ACTIVE, "suspend": True})
    assert assess(view).reason == "Suspended"
    assert assess(replace(view, pod=STOPPED)).situation is Situation.STOPPED


def test_a_run_in_backoff_past_the_active_deadline_has_failed() -> None:
    view = make_view(between("TrainerFailed"), spec=ACTIVE)
    assert decide(view) is Action.REST
    assessment = assess(view)
    assert (assessment.situation, assessment.reason) == (Situation.FAILED, "ActiveDeadlineExceeded")
    status = derive(view, assessment)
    assert [attempt.attempt for attempt in status.attempts] == [1], "no attempt is recorded twice"
    assert "attempt 1 ended (TrainerFailed)" in status.failure.message


def test_a_run_whose_pod_cannot_be_created_is_late_from_its_attempts_start() -> None:
    late = assess(make_view(PODLESS, trouble=REFUSED, spec=START))
    assert (late.situation, late.reason) == (Situation.FAILED, "StartDeadlineExceeded")
    assert "spec.startDeadlineSeconds (300)." in late.message
    assert "exceeded quota" in late.message
    again = {**PODLESS, "startTime": "2026-05-01T09:00:00Z", "attempt": 2, "attemptStartTime": ENDED}
    in_time = make_view(again, trouble=REFUSED, spec=START)
    assert assess(in_time).reason == "CreationRefused", "an attempt has a start of its own"
    assert requeue_after(in_time, assess(in_time)) == pytest.approx(270)


def test_it_is_not_late_before_its_creation_is_refused_once_more() -> None:
    """It may have waited for a slot, and its quota may have room by now."""
    view = make_view(PODLESS, spec=START)
    assert (decide(view), assess(view).reason) == (Action.CREATE, "PodStarting")


def test_a_queued_run_past_the_active_deadline_has_failed_and_names_the_queue() -> None:
    waits = {**between("Stopped"), "failure": None, "queue": {"place": 1, "active": 2, "limit": 2}}
    assessment = assess(make_view(waits, spec=ACTIVE, queue_position=QueuePosition(limit=2, active=2, before=0)))
    assert (assessment.situation, assessment.reason) == (Situation.FAILED, "ActiveDeadlineExceeded")
    assert "Last seen: Queued: position 1 at runtime 'tiny' (2 of 2 runs active)." in assessment.message


def test_a_run_in_backoff_is_reconciled_at_the_active_deadline() -> None:
    view = make_view(between("TrainerFailed"), spec={"activeDeadlineSeconds": 605}, now=NOW)
    view = replace(view, backoff_seconds=300)
    assert requeue_after(view, assess(view)) == pytest.approx(5)


def test_a_run_that_is_late_before_its_pod_was_created_has_failed() -> None:
    view = make_view(STARTED, trouble=("CreationRefused", "exceeded quota"), spec=ACTIVE)
    assert decide(view) is Action.REST
    assert assess(view).reason == "ActiveDeadlineExceeded"


def test_a_stopped_run_past_its_active_deadline_says_what_to_raise() -> None:
    view = make_view(between("Stopped"), spec={**ACTIVE, "suspend": True})
    assessment = assess(view)
    assert assessment.situation is Situation.STOPPED
    assert "raise spec.activeDeadlineSeconds, which has passed, and set spec.suspend to false" in assessment.message
    assert requeue_after(view, assessment) is None


@pytest.mark.parametrize("deleting", [False, True], ids=["asked now", "saving"])
def test_a_missed_one_is_not_waited_for_again(deleting: bool) -> None:
    """A pod may take an hour to save: it is not reconciled ten times a second meanwhile."""
    view = written(LATE["start"][0])
    until = format_time(NOW + timedelta(hours=1))
    pod = make_pod(ready(), ready(), running(), deleting=deleting, delete_by=until)
    assert decide(replace(view, pod=pod)) is (Action.REST if deleting else Action.STOP)
    wait = requeue_after(replace(view, pod=pod), assess(view))
    assert wait is not None
    assert wait >= (600 if deleting else 1)
