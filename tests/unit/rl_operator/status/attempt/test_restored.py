from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import (
    CREATED,
    NOW,
    POD,
    RUNNING,
    STARTED,
    TRAINING,
    make_environment,
    make_run,
    ready,
    status_of,
)

from rl_operator.api.names import STARTED_AS_ANNOTATION
from rl_operator.api.refusal import Refusal
from rl_operator.api.status_fields import Attempt, RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.attempt.restored import is_restored, mark_of, repaired
from rl_operator.status.attempt.run_admission import holds_slot
from rl_operator.status.attempt.view import View
from rl_operator.status.derived_status import derive
from rl_operator.status.observed.observation import PodObservation, format_time
from rl_operator.status.phase_and_action import Action, assess, decide, requeue_after

CHECKPOINT = {"step": 12, "statePath": "tinker://m/weights/12"}


def marked(mark: str | None, status: dict[str, Any] | None = None, **spec: Any) -> TrainingRun:
    run = make_run(status, **spec)
    annotations = {} if mark is None else {STARTED_AS_ANNOTATION: mark}
    return run.with_changes(metadata=run.metadata.with_changes(annotations=annotations))


@pytest.mark.parametrize(
    ("mark", "restored"),
    [(None, False), ("sorting.u-1", False), ("sorting.another", True), ("other.another", False), ("nonsense", False)],
)
def test_its_own_name_with_another_uid_means_a_restored_run(mark: str | None, restored: bool) -> None:
    assert is_restored(marked(mark)) is restored
    assert is_restored(marked(mark, RUNNING)) is restored, "whatever its status says"


def test_the_mark_of_a_run_belongs_to_it() -> None:
    run = make_run()
    assert mark_of(run) == "sorting.u-1"
    assert not is_restored(marked(mark_of(run)))


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_run_is_finished_by_its_status(phase: str) -> None:
    assert not is_restored(marked("sorting.another", {**STARTED, "phase": phase}))


@pytest.mark.parametrize("status", [None, STARTED, RUNNING])
def test_a_restored_run_rests_and_explains_how_to_run_it_again(status: dict[str, Any] | None) -> None:
    view = View(marked("sorting.another", status), NOW, 10.0)
    assessment = assess(view)
    written = derive(view, assessment)
    assert decide(view) is Action.REST
    assert (assessment.reason, written.phase, requeue_after(view, assessment)) == ("Restored", "Stopped", None)
    assert {c.type: c.status for c in written.conditions} == {"Accepted": "True", "Suspended": "True"}
    assert "`rlctl resume sorting`" in assessment.message
    assert "`kubectl -n team-a annotate rlrun sorting rl-operator.dev/started-as-`" in assessment.message


def test_a_restored_status_keeps_only_its_checkpoint() -> None:
    former = {**RUNNING, "checkpoint": CHECKPOINT, "failedAttempts": 2, "historyName": "h"}
    view = View(marked("sorting.another", former), NOW, 10.0)
    assessment = assess(view)
    written = derive(view, assessment)
    assert "startFrom.checkpoint: tinker://m/weights/12" in assessment.message
    assert written.checkpoint is not None
    assert (written.start_time, written.attempt, written.pod_name, written.config_map_name, written.history_name) == (
        STARTED["startTime"], None, None, None, None,
    )  # fmt: skip
    again = View(view.run.with_changes(status=written), NOW, 10.0)
    assert status_of(again) == written, "written once"


def test_a_pod_restored_with_it_is_named() -> None:
    view = View(marked("sorting.another", RUNNING), NOW, 10.0, left_over=("sorting-other-1",))
    assert "Pod sorting-other-1 came back with it and works unwatched: delete it." in assess(view).message


def test_requested_again_it_has_all_of_its_time() -> None:
    """The API server does not allow clearing its earlier start, which was long ago."""
    status = {"startTime": format_time(NOW - timedelta(days=7)), "phase": "Stopped"}
    asked = make_run(status, activeDeadlineSeconds=300)
    created = asked.metadata.with_changes(creation_timestamp=format_time(NOW - timedelta(hours=1)))
    view = View(asked.with_changes(metadata=created), NOW, 10.0)
    assert decide(view) is Action.START
    begun = view.run.status.with_changes(attempt=1, pod_name=POD, phase="Running")
    trains = replace(view, run=view.run.with_changes(status=begun))
    for seconds, verdict in ((299, "Training"), (300, "ActiveDeadlineExceeded")):
        pod = TRAINING
        later = replace(trains, pod=pod, now=pod.created + timedelta(seconds=seconds))
        assert assess(later).reason == verdict
    record = Attempt(attempt=1, pod=POD, started=format_time(NOW), ended=format_time(NOW), reason="Evicted")
    lost = replace(trains, run=trains.run.with_changes(status=begun.with_changes(attempts=(record,))))
    assert assess(lost).reason == "BackOff"
    assert assess(replace(lost, now=NOW + timedelta(seconds=300))).reason == "ActiveDeadlineExceeded"


def test_requested_again_it_is_checked_and_holds_no_slot_before_it_starts() -> None:
    status = {"startTime": STARTED["startTime"], "phase": "Pending"}
    refusal = Refusal(code="LockedField", field="spec.config.group_size", given="4", locked="8")
    view = View(make_run(status), NOW, 10.0, refusals=(refusal,))
    assert (decide(view), assess(view).reason, holds_slot(view.run)) == (Action.REST, "LockedField", False)


def test_without_its_mark_it_starts_from_the_beginning() -> None:
    restored = View(marked("sorting.another", RUNNING), NOW, 10.0)
    rested = status_of(restored).to_wire()
    assert decide(View(make_run(rested), NOW, 10.0)) is Action.START
    suspended = View(make_run(rested, suspend=True), NOW, 10.0)
    assert (decide(suspended), assess(suspended).reason) == (Action.RENDER, "Draft")
    assert status_of(suspended).attempts == ()


def status(**fields: Any) -> RunStatus:
    return RunStatus.model_validate({"startTime": "2026-05-01T08:00:00Z", "phase": "Running", **fields})


def pod(attempt: int) -> PodObservation:
    return replace(TRAINING, name=f"sorting-u1abc-{attempt}", attempt=attempt)


PODS = (pod(1), pod(2))


@pytest.mark.parametrize("attempt", [2, 3], ids=["as the pods say", "its pod is yet to be created"])
def test_a_current_status_is_left_unchanged(attempt: int) -> None:
    before = status(attempt=attempt, podName=f"sorting-u1abc-{attempt}")
    assert repaired(before, PODS) is before


@pytest.mark.parametrize("pods", [(), (make_environment(0, 0, ready(), attempt=4),)], ids=["none", "an environment's"])
def test_without_its_own_pod_nothing_is_known(pods: tuple[PodObservation, ...]) -> None:
    before = RunStatus()
    assert repaired(before, pods) is before


@pytest.mark.parametrize(
    "edited", [{"attempt": 1, "podName": "sorting-u1abc-1"}, {"attempt": 1}, {}], ids=["set back", "half", "removed"]
)
def test_a_reset_status_is_repaired(edited: dict[str, Any]) -> None:
    after = repaired(status(**edited), PODS)
    assert (after.attempt, after.pod_name, after.start_time) == (2, "sorting-u1abc-2", "2026-05-01T08:00:00Z")


def test_a_run_with_a_pod_was_started() -> None:
    after = repaired(RunStatus(), PODS[:1])
    assert (after.attempt, after.pod_name, after.start_time) == (1, "sorting-u1abc-1", CREATED)
