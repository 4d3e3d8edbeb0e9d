from datetime import timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import CREATED, NOW, STARTED, make_pod, make_run, make_view, waiting

from rl_operator.api.names import QUEUE_NAME_LABEL
from rl_operator.status.attempt.view import View
from rl_operator.status.derive import derive
from rl_operator.status.lifecycle import Action, assess, decide
from rl_operator.status.observed.observation import PodObservation, format_time

SCHEDULING = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gated"}
GATED_STATUS = {
    **STARTED,
    "conditions": [{**STARTED["conditions"][0], "reason": "Gated", "message": "Waiting for admission."}],
}


def gated(**more: Any) -> PodObservation:
    return make_pod(waiting(), waiting(), phase="Pending", node="", conditions=[SCHEDULING], **more)


def admitted(**more: Any) -> PodObservation:
    return make_pod(waiting(), waiting(), waiting(), phase="Pending", **more)


def test_a_gated_pod_has_a_reason_of_its_own() -> None:
    run = make_run(STARTED)
    labeled = run.with_changes(metadata=run.metadata.with_changes(labels={QUEUE_NAME_LABEL: "not asked"}))
    assessment = assess(View(labeled, NOW, 10.0, gated(labels={QUEUE_NAME_LABEL: "team"})))
    assert (assessment.situation.name, assessment.reason) == ("STARTING", "Gated")
    assert "Kueue admits it when queue 'team' has room" in assessment.message
    assert "the controller that set the gate removes it" in assess(make_view(STARTED, pod=gated())).message


def test_no_start_deadline_runs_while_the_pod_is_gated() -> None:
    late = NOW + timedelta(days=9)
    view = make_view(GATED_STATUS, pod=gated(), now=late, spec={"startDeadlineSeconds": 60})
    assert (decide(view), assess(view).reason) == (Action.REST, "Gated")


def test_the_start_deadline_begins_when_the_gate_is_removed() -> None:
    view = make_view(GATED_STATUS, pod=admitted(), spec={"startDeadlineSeconds": 60})
    status = derive(view, assess(view))
    assert status.admitted_time == format_time(NOW)
    recorded = {**STARTED, "admittedTime": format_time(NOW)}
    spec = {"startDeadlineSeconds": 60}
    in_time = make_view(recorded, pod=admitted(), now=NOW + timedelta(seconds=59), spec=spec)
    late = make_view(recorded, pod=admitted(), now=NOW + timedelta(seconds=61), spec=spec)
    assert assess(in_time).reason == "PodStarting"
    assert assess(late).reason == "StartDeadlineExceeded"
    assert derive(late, assess(late)).admitted_time == format_time(NOW), "it is written once"


def test_a_pod_that_was_never_gated_has_no_such_time() -> None:
    view = make_view(STARTED, pod=admitted())
    assert derive(view, assess(view)).admitted_time is None


def test_a_deleted_gated_pod_is_released_and_recreated_for_the_same_attempt() -> None:
    view = make_view(GATED_STATUS, pod=gated(deleting=True))
    assessment = assess(view)
    assert decide(view) is Action.REMOVE_FINALIZER
    assert (assessment.reason, assessment.ending) == ("Gated", None)
    assert "created again" in assessment.message
    assert decide(make_view(GATED_STATUS)) is Action.CREATE
    assert derive(view, assessment).attempts == ()


@pytest.mark.parametrize("spec", [{"suspend": True}])
def test_one_deleted_to_stop_the_run_is_not_recreated(spec: dict[str, Any]) -> None:
    view = make_view(GATED_STATUS, pod=gated(deleting=True), spec=spec)
    assert decide(view) is Action.REST
    ending = assess(view).ending
    assert ending is not None
    assert ending.reason == "Stopped"


def test_one_deleted_for_a_deadline_is_not_recreated() -> None:
    late = {**STARTED["conditions"][0], "reason": "ActiveDeadlineExceeded", "message": "Late."}
    view = make_view({**STARTED, "conditions": [late]}, pod=gated(deleting=True), spec={"activeDeadlineSeconds": 60})
    assert decide(view) is Action.REST
    assert assess(view).reason == "ActiveDeadlineExceeded"


def test_a_pod_deleted_after_admission_is_a_lost_attempt() -> None:
    pod = admitted(deleting=True, node="")
    assert assess(make_view({**STARTED, "admittedTime": CREATED}, pod=pod)).ending is not None
