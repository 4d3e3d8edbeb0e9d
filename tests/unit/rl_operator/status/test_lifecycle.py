"""What is the case, and what to do next: one row per state that a run can be found in."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
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
    result,
    running,
    terminated,
    waiting,
)

from rl_operator.api.hints import FROZEN
from rl_operator.api.refusal import Refusal
from rl_operator.status.lifecycle import LINGER_SECONDS, Verb, decide, find, next_look
from rl_operator.status.observation import TrainerStatus, format_time
from rl_operator.status.table import Situation
from rl_operator.status.view import View

REFUSAL = Refusal(code="LockedField", field="spec.tinker.lora_rank", given=8, locked=32, hint="it is locked to 32")
WORKING = make_pod(ready(), ready(), ready())
STARTING = make_pod(ready(), ready(), running())
FAILED_POD = make_pod(ready(), terminated(1, failed_result("internal", "bug")), terminated(0), phase="Failed")
SUSPENDED = {"suspend": True}


def ended(reason: str, *, attempts: int = 1, steps: int = 0, **more: Any) -> dict[str, Any]:
    """The status of a run whose current attempt has ended and is recorded."""
    records = [
        {"attempt": n + 1, "pod": POD, "ended": ENDED, "reason": reason, "steps": steps} for n in range(attempts)
    ]
    return {**STARTED, "phase": "Pending", "attempt": attempts, "attempts": records, **more}


ROWS: dict[str, tuple[View, Situation, str, Verb]] = {
    "new": (make_view(), Situation.WAITING, "Starting", Verb.START),
    "refused": (make_view(refusals=(REFUSAL,)), Situation.REFUSED, "LockedField", Verb.REST),
    "draft": (make_view(spec=SUSPENDED), Situation.DRAFT, "Draft", Verb.RENDER),
    "frozen, nothing created yet": (make_view(STARTED), Situation.STARTING, "PodCreating", Verb.CREATE),
    "settings edited after the start": (
        make_view(STARTED, refusals=(Refusal(code="FrozenField", field="spec.config", hint=FROZEN),)),
        Situation.STARTING,
        "PodCreating",
        Verb.CREATE,
    ),
    "pod starting": (make_view(STARTED, pod=STARTING), Situation.STARTING, "ContainersStarting", Verb.REST),
    "a name taken": (
        make_view(STARTED, trouble=("NameTaken", "pod x belongs to somebody")),
        Situation.STARTING,
        "NameTaken",
        Verb.CREATE,
    ),
    "image missing": (
        make_view(STARTED, pod=make_pod(waiting("ImagePullBackOff", "no such image"), waiting(), waiting())),
        Situation.STARTING,
        "ImageNotPulled",
        Verb.REST,
    ),
    "a draft that cannot be rendered": (
        make_view(spec=SUSPENDED, trouble=("CreationRefused", "the environment is gone")),
        Situation.WAITING,
        "CreationRefused",
        Verb.RENDER,
    ),
    "configuration missing": (
        make_view(
            STARTED, pod=make_pod(ready(), waiting("CreateContainerConfigError", 'configmap "k" not found'), ready())
        ),
        Situation.STARTING,
        "ContainerConfigMissing",
        Verb.REST,
    ),
    "no node": (
        make_view(
            STARTED,
            pod=make_pod(
                waiting(),
                waiting(),
                waiting(),
                phase="Pending",
                node="",
                conditions=[
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
                ],
            ),
        ),
        Situation.STARTING,
        "Unschedulable",
        Verb.REST,
    ),
    "all ready": (make_view(STARTED, pod=WORKING), Situation.RUNNING, "Training", Verb.REST),
    "running stays running when a probe fails": (
        make_view(RUNNING, pod=STARTING),
        Situation.RUNNING,
        "Training",
        Verb.REST,
    ),
    "suspend asked": (make_view(RUNNING, pod=WORKING, spec=SUSPENDED), Situation.STOPPING, "Suspended", Verb.STOP),
    "stopping": (
        make_view(RUNNING, pod=make_pod(ready(), ready(), ready(), deleting=True), spec=SUSPENDED),
        Situation.STOPPING,
        "Suspended",
        Verb.REST,
    ),
    "stopped": (
        make_view(
            RUNNING,
            pod=make_pod(
                ready(), terminated(0, result(outcome="stopped")), terminated(0), phase="Failed", deleting=True
            ),
            spec=SUSPENDED,
        ),
        Situation.STOPPED,
        "Stopped",
        Verb.REST,
    ),
    "suspended before the pod was created": (
        make_view(STARTED, spec=SUSPENDED),
        Situation.STOPPED,
        "Stopped",
        Verb.REST,
    ),
    "still stopped": (make_view(ended("Stopped"), spec=SUSPENDED), Situation.STOPPED, "Stopped", Verb.REST),
    "resumed: no backoff after a stop": (make_view(ended("Stopped")), Situation.WAITING, "BackOff", Verb.START),
    "first failure": (make_view(RUNNING, pod=FAILED_POD), Situation.WAITING, "BackOff", Verb.REST),
    "backing off": (
        make_view(ended("TrainerFailed", attempts=3), now=NOW),
        Situation.WAITING,
        "BackOff",
        Verb.REST,
    ),
    "backed off long enough": (
        make_view(ended("TrainerFailed"), now=NOW + timedelta(minutes=1)),
        Situation.WAITING,
        "BackOff",
        Verb.START,
    ),
    "backoffLimit reached": (
        make_view({**RUNNING, "failedAttempts": 3}, pod=FAILED_POD),
        Situation.FAILED,
        "TrainerFailed",
        Verb.REST,
    ),
    "five attempts without a new step": (
        make_view(
            {**ended("BackendUnreachable", attempts=4, steps=7), "attempt": 5},
            pod=make_pod(ready(), terminated(4, failed_result("backend", "gone")), terminated(0), phase="Failed"),
        ),
        Situation.FAILED,
        "BackendUnreachable",
        Verb.REST,
    ),
    "success": (
        make_view(RUNNING, pod=make_pod(ready(), terminated(0, result()), terminated(0), phase="Succeeded")),
        Situation.SUCCEEDED,
        "Succeeded",
        Verb.REST,
    ),
    "trainer done, the pod is ending": (
        make_view(RUNNING, pod=make_pod(ready(), terminated(0, result()), ready())),
        Situation.RUNNING,
        "Training",
        Verb.REST,
    ),
    "trainer done, the pod lingers": (
        make_view(
            RUNNING,
            pod=make_pod(ready(), terminated(0, result()), ready()),
            now=NOW + timedelta(seconds=LINGER_SECONDS),
        ),
        Situation.RUNNING,
        "Training",
        Verb.STOP,
    ),
    "start deadline passed": (
        make_view(STARTED, pod=STARTING, spec={"startDeadlineSeconds": 60}),
        Situation.STARTING,
        "ContainersStarting",
        Verb.STOP,
    ),
    "start deadline passed and the pod is over": (
        make_view(
            STARTED,
            pod=make_pod(
                ready(), terminated(0, result(outcome="stopped")), terminated(0), phase="Failed", deleting=True
            ),
            spec={"startDeadlineSeconds": 60},
        ),
        Situation.FAILED,
        "StartDeadlineExceeded",
        Verb.REST,
    ),
    "an unscheduled pod that is deleted is over": (
        make_view(
            STARTED,
            pod=make_pod(waiting(), waiting(), waiting(), phase="Pending", node="", deleting=True),
            spec={"startDeadlineSeconds": 60},
        ),
        Situation.FAILED,
        "StartDeadlineExceeded",
        Verb.REST,
    ),
    "no progress": (
        make_view(RUNNING, pod=WORKING, spec={"progressDeadlineSeconds": 300}),
        Situation.RUNNING,
        "Training",
        Verb.STOP,
    ),
    "progress counts from the last step": (
        make_view(
            RUNNING,
            pod=WORKING,
            trainer=TrainerStatus(step=3, total_steps=40, last_step_at=format_time(NOW - timedelta(seconds=5))),
            spec={"progressDeadlineSeconds": 300},
        ),
        Situation.RUNNING,
        "Training",
        Verb.REST,
    ),
    "active deadline": (
        make_view(RUNNING, pod=WORKING, spec={"activeDeadlineSeconds": 600}),
        Situation.RUNNING,
        "Training",
        Verb.STOP,
    ),
}


@pytest.mark.parametrize(("view", "situation", "reason", "verb"), ROWS.values(), ids=ROWS)
def test_row(view: View, situation: Situation, reason: str, verb: Verb) -> None:
    finding = find(view)
    assert (finding.situation, finding.reason, decide(view)) == (situation, reason, verb)
    assert finding.message


def test_a_refusal_says_field_and_how_many_more() -> None:
    message = find(make_view(refusals=(REFUSAL, REFUSAL))).message
    assert message == "Refused: spec.tinker.lora_rank is 8: it is locked to 32 (and 1 more)"


def test_a_missed_start_deadline_names_what_was_seen_last() -> None:
    message = find(ROWS["start deadline passed and the pod is over"][0]).message
    assert "spec.startDeadlineSeconds (60)" in message
    assert "Creating the pod." in message


def test_the_next_look_is_the_nearest_deadline() -> None:
    view = make_view(STARTED, pod=STARTING, spec={"startDeadlineSeconds": 700, "activeDeadlineSeconds": 900})
    assert next_look(view, find(view)) == pytest.approx(100)


@pytest.mark.parametrize("deleting", [False, True])
def test_a_deadline_that_has_passed_is_not_waited_for_again(deleting: bool) -> None:
    """A pod may take an hour to save: nobody looks at it ten times a second meanwhile."""
    pod = replace(STARTING, deleting=deleting)
    view = make_view(STARTED, pod=pod, spec={"startDeadlineSeconds": 10})
    assert decide(view) is (Verb.REST if deleting else Verb.STOP)
    assert next_look(view, find(view)) is None


def test_a_run_that_trains_needs_no_clock_without_deadlines() -> None:
    view = make_view(RUNNING, pod=WORKING, spec={"progressDeadlineSeconds": None})
    assert next_look(view, find(view)) is None


def test_what_the_trainer_waits_for_and_warns_of_is_in_the_message() -> None:
    trainer = TrainerStatus(
        step=3, total_steps=40, waiting="Every one of the last 64 groups had equal scores.", warnings=("KL is 0.2.",)
    )
    finding = find(make_view(RUNNING, pod=WORKING, trainer=trainer))
    assert finding.message == "Training: step 3 of 40. Every one of the last 64 groups had equal scores. KL is 0.2."


@pytest.mark.parametrize(("step", "says"), [(5, "Training: step 5 of 40."), (40, "All steps are trained")])
def test_a_checkpoint_in_the_middle_is_not_the_end(step: int, says: str) -> None:
    trainer = TrainerStatus(phase="saving", step=step, total_steps=40)
    assert find(make_view(RUNNING, pod=WORKING, trainer=trainer)).message.startswith(says)


def test_a_missed_progress_deadline_names_what_was_seen_last() -> None:
    """Also when the trainer no longer answers: its pod is on its way out by then."""
    seen = "Training: step 3 of 40. Every one of the last 64 groups had equal scores."
    ready = {**RUNNING["conditions"][0], "message": seen}
    status = {**RUNNING, "conditions": [ready]}
    spec = {"progressDeadlineSeconds": 300}
    deleting = make_pod(running(), running(), running(), deleting=True)
    assert find(make_view(status, pod=deleting, spec=spec)).message == seen
    stopped = terminated(0, result(outcome="stopped", stepsTrained=3))
    over = make_pod(terminated(0), stopped, terminated(0), phase="Failed", deleting=True)
    finding = find(make_view(status, pod=over, spec=spec))
    assert finding.reason == "ProgressDeadlineExceeded"
    assert f"Last seen: {seen}" in finding.message
