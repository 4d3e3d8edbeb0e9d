from datetime import timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import (
    CREATED,
    ENDED,
    NOW,
    STARTED,
    make_pod,
    make_run,
    make_view,
    status_of,
    waiting,
    working_pod,
)

from rl_operator.api.names import QUEUE_NAME_LABEL, SLOT_GATE
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.attempt.run_admission import (
    holds_slot,
    order_of,
    positions_with_news,
    queued,
    shown_position,
    waits_in_queue,
)
from rl_operator.status.attempt.view import QueuePosition, View
from rl_operator.status.derived_status import derive
from rl_operator.status.observed.observation import PodObservation, format_time
from rl_operator.status.phase_and_action import Action, assess, decide

FULL = QueuePosition(limit=2, active=2, before=0)
QUEUED = {"phase": "Pending", "queue": {"place": 1, "active": 2, "limit": 2}}
STOPPED = {
    **STARTED,
    "phase": "Stopped",
    "attempts": [{"attempt": 1, "pod": "p", "ended": "2026-05-01T11:59:59Z", "reason": "TrainerFailed"}],
}


@pytest.mark.parametrize(
    ("place", "shown"),
    [(1, 1), (10, 10), (11, 10), (14, 10), (15, 20), (99, 100), (149, 100), (150, 200), (9499, 9000)],
)
def test_a_position_is_exact_up_to_ten(place: int, shown: int) -> None:
    assert shown_position(place) == shown


@pytest.mark.parametrize("moved_up", [True, False])
@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 15, 100, 2345])
def test_only_runs_with_a_changed_position_have_news(length: int, moved_up: bool) -> None:
    def reads(place: int) -> tuple[int, bool]:
        return shown_position(place), place > 10

    before = 1 if moved_up else -1
    brute = [place for place in range(1, length + 1) if reads(place) != reads(place + before)]
    assert list(positions_with_news(length, moved_up=moved_up)) == brute


def test_few_of_thousands_are_told_when_a_run_ahead_ends() -> None:
    assert len(list(positions_with_news(10_000, moved_up=True))) < 40


def test_a_full_runtime_makes_a_new_run_wait_with_its_position() -> None:
    view = make_view(queue_position=QueuePosition(limit=2, active=2, before=2))
    assessment = assess(view)
    assert decide(view) is Action.REST
    assert (assessment.reason, assessment.message) == (
        "Queued",
        "Queued: position 3 at runtime 'tiny' (2 of 2 runs active).",
    )
    status = derive(view, assessment)
    assert status.phase == "Pending"
    assert status.queue.to_wire() == {"place": 3, "active": 2, "limit": 2}
    [reconciling] = [c for c in status.conditions if c.type == "Reconciling"]
    assert (reconciling.status, reconciling.reason) == ("True", "Queued")


def test_a_far_position_is_rounded() -> None:
    assessment = queued(make_run(), QueuePosition(limit=5, active=5, before=346))
    assert assessment.message == "Queued: position about 300 at runtime 'tiny' (5 of 5 runs active)."


def test_a_limit_of_zero_says_who_can_help() -> None:
    assessment = queued(make_run(), QueuePosition(limit=0, active=0, before=0))
    assert "limits.maxActiveRuns is 0: no run starts until an administrator raises it" in assessment.message


@pytest.mark.parametrize(
    ("status", "holds", "waits"),
    [
        ({}, False, False),
        ({"phase": "Pending"}, False, False),
        (QUEUED, False, True),
        (STARTED, True, False),
        (STOPPED, False, False),
        ({**STOPPED, **QUEUED}, False, True),
        ({**STARTED, "phase": "Stopping"}, True, False),
        ({**STARTED, "phase": "Failed"}, False, False),
        ({**QUEUED, "phase": "Succeeded"}, False, False),
    ],
)
def test_runs_that_hold_a_slot_and_runs_that_queue(status: dict[str, Any], holds: bool, waits: bool) -> None:
    run = make_run(status)
    assert (holds_slot(run), waits_in_queue(run)) == (holds, waits)


def test_a_suspended_or_deleted_run_leaves_the_queue() -> None:
    assert not waits_in_queue(make_run(QUEUED, suspend=True))
    run = make_run(QUEUED)
    going = run.with_changes(metadata=run.metadata.with_changes(deletion_timestamp="2026-05-01T12:00:00Z"))
    assert not waits_in_queue(going)


def test_runs_queue_by_priority_then_age_then_name() -> None:
    def run(name: str, created: str, priority: int = 0) -> TrainingRun:
        made = make_run(priority=priority)
        return made.with_changes(metadata=made.metadata.with_changes(name=name, creation_timestamp=created))

    queue_position = [
        run("b", "2026-01-01T00:00:01Z"),
        run("a", "2026-01-01T00:00:01Z"),
        run("z", "2026-01-01T00:00:00Z"),
    ]
    queue_position += [run("late", "2026-01-02T00:00:00Z", 5), run("low", "2025-01-01T00:00:00Z", -1)]
    assert [each.metadata.name for each in sorted(queue_position, key=lambda run: order_of(run, 5))] == [
        "late",
        "z",
        "a",
        "b",
        "low",
    ]


def test_a_priority_above_the_runtimes_counts_as_the_highest_that_it_allows() -> None:
    """A run that started is checked no more, and may be stopped and resumed."""
    assert order_of(make_run(priority=1000), 2) == order_of(make_run(priority=2), 2)


ASKED_TO_STOP = {"suspend": True}
BEGUN = {**STARTED, "attemptStartTime": CREATED}
GAVE_BACK = {
    **BEGUN,
    "phase": "Pending",
    "message": "The run gave its slot back.",
    "queue": {"place": 1, "active": 0, "limit": 1, "gaveBack": ENDED},
}
REFUSED = ("CreationRefused", "Not created, and tried again: exceeded quota.")
ALONE, TAKEN = QueuePosition(limit=1, active=0, before=0), QueuePosition(limit=1, active=1, before=0)


def test_a_run_without_a_pod_gives_its_slot_back_and_says_so() -> None:
    view = make_view(BEGUN, trouble=REFUSED, queue_position=ALONE)
    status = status_of(view)
    assert (status.phase, status.queue and status.queue.place) == ("Pending", 1)
    assert "gave its slot at runtime 'tiny' back" in status.message
    assert status.message.endswith(REFUSED[1])
    [reconciling] = [c for c in status.conditions if c.type == "Reconciling"]
    assert reconciling.reason == "CreationRefused"
    run = view.run.with_changes(status=status)
    assert (holds_slot(run), waits_in_queue(run)) == (False, False)


KEPT: dict[str, View] = {
    "it was refused a moment ago": make_view(
        {**BEGUN, "attemptStartTime": format_time(NOW - timedelta(seconds=59))}, trouble=REFUSED, queue_position=ALONE
    ),
    "its runtime has no limit": make_view(BEGUN, trouble=REFUSED),
    "it has a pod": make_view(BEGUN, trouble=REFUSED, queue_position=ALONE, pod=working_pod()),
    "nothing refuses it": make_view(BEGUN, queue_position=ALONE),
}


@pytest.mark.parametrize("view", KEPT.values(), ids=KEPT)
def test_a_slot_is_kept(view: View) -> None:
    assert status_of(view).queue is None


def test_a_run_that_gave_its_slot_back_tries_on() -> None:
    for position in (TAKEN, ALONE, None):
        assert decide(make_view(GAVE_BACK, queue_position=position)) is Action.CREATE
    waits = make_view(GAVE_BACK, queue_position=TAKEN, trouble=REFUSED)
    assert status_of(waits).queue == make_run(GAVE_BACK).status.queue.with_changes(active=1)
    assert "back at 2026-05-01T11:59:30Z" in assess(waits).message
    assert assess(make_view(GAVE_BACK, queue_position=ALONE, spec=ASKED_TO_STOP)).reason == "Stopped"
    started = status_of(make_view(GAVE_BACK, queue_position=ALONE, pod=working_pod()))
    assert started.queue is None


def test_what_keeps_its_pod_from_starting_keeps_others_from_waiting_for_it() -> None:
    """A pod with nothing but our gate, and what happened to it or its run."""
    for view in (
        make_view(GATED_STATUS | QUEUED, pod=gated(SLOT_GATE, deleting=True), queue_position=FULL),
        make_view(GATED_STATUS | QUEUED, pod=gated(SLOT_GATE), queue_position=ROOM, trouble=("TemplateChanged", "no")),
    ):
        status = status_of(view)
        assert (decide(view) is Action.UNGATE, status.queue.gave_back) == (False, format_time(NOW))
        assert not waits_in_queue(view.run.with_changes(status=status))


def test_the_share_of_a_namespace_is_named() -> None:
    position = QueuePosition(limit=2, active=2, before=3, namespace="team-a")
    assessment = queued(make_run(), position)
    assert assessment.message == (
        "Queued: position 4 of namespace 'team-a' at runtime 'tiny' "
        "(2 active of the 2 that a namespace may have there)."
    )
    status = status_of(make_view(queue_position=position))
    assert status.queue.to_wire() == {"place": 4, "active": 2, "limit": 2, "namespace": "team-a"}


GATED_STATUS = {
    **STARTED,
    "conditions": [{**STARTED["conditions"][0], "reason": "Gated", "message": "Waiting for admission."}],
}


def gated(*gates: str, **more: Any) -> PodObservation:
    """By another's gate, if none is named."""
    spec = {"schedulingGates": [{"name": gate} for gate in gates or ("a.strangers/gate",)]}
    return make_pod(waiting(), waiting(), phase="Pending", node="", spec=spec, **more)


def admitted(**more: Any) -> PodObservation:
    return make_pod(waiting(), waiting(), waiting(), phase="Pending", **more)


def test_a_gated_pod_has_a_reason_of_its_own() -> None:
    run = make_run(STARTED)
    labeled = run.with_changes(metadata=run.metadata.with_changes(labels={QUEUE_NAME_LABEL: "not asked"}))
    assessment = assess(View(labeled, NOW, 10.0, gated(labels={QUEUE_NAME_LABEL: "team"})))
    assert (assessment.situation.name, assessment.reason) == ("STARTING", "Gated")
    assert assessment.message.endswith(
        "Kueue admits it to queue 'team': kubectl -n team-a get workloads says why it waits."
    )
    assert "the controller that set the gate removes it" in assess(make_view(STARTED, pod=gated())).message


def test_the_start_deadline_begins_when_the_gate_is_removed() -> None:
    view = make_view(GATED_STATUS, pod=admitted(), spec={"startDeadlineSeconds": 60})
    status = status_of(view)
    assert status.admitted_time == format_time(NOW)
    recorded = {**STARTED, "admittedTime": format_time(NOW)}
    spec = {"startDeadlineSeconds": 60}
    in_time = make_view(recorded, pod=admitted(), now=NOW + timedelta(seconds=59), spec=spec)
    late = make_view(recorded, pod=admitted(), now=NOW + timedelta(seconds=61), spec=spec)
    assert assess(in_time).reason == "PodStarting"
    assert assess(late).reason == "StartDeadlineExceeded"
    assert status_of(late).admitted_time == format_time(NOW), "it is written once"


def test_a_pod_that_was_never_gated_has_no_such_time() -> None:
    view = make_view(STARTED, pod=admitted())
    assert status_of(view).admitted_time is None


def test_a_deleted_gated_pod_is_released_and_recreated_for_the_same_attempt() -> None:
    view = make_view(GATED_STATUS, pod=gated(deleting=True))
    assessment = assess(view)
    assert decide(view) is Action.REMOVE_FINALIZER
    assert (assessment.reason, assessment.ending) == ("Gated", None)
    assert "created again" in assessment.message
    assert decide(make_view(GATED_STATUS)) is Action.CREATE
    assert derive(view, assessment).attempts == ()


def test_a_pod_deleted_after_admission_is_a_lost_attempt() -> None:
    pod = admitted(deleting=True, node="")
    assert assess(make_view({**STARTED, "admittedTime": CREATED}, pod=pod)).ending is not None


ROOM = QueuePosition(limit=2, active=1, before=0)
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no GPU"}
LATE = {"reason": "ActiveDeadlineExceeded", "message": "Late."}
DECISIONS: dict[str, tuple[View, str]] = {
    "a free slot": (make_view(queue_position=ROOM), "START Starting"),
    "a free slot for one ahead": (make_view(queue_position=QueuePosition(limit=2, active=1, before=1)), "REST Queued"),
    "no limit": (make_view(), "START Starting"),
    "its turn": (make_view(QUEUED, queue_position=ROOM), "START Starting"),
    "resumed at a full runtime": (make_view(STOPPED, queue_position=FULL), "REST Queued"),
    "resumed, and waiting": (make_view(STOPPED | QUEUED, queue_position=FULL), "REST Queued"),
    "resumed, and a free slot: no backoff": (make_view(STOPPED, queue_position=ROOM), "START BackOff"),
    "suspended while it waits": (
        make_view(STOPPED | QUEUED, queue_position=FULL, spec=ASKED_TO_STOP),
        "REST Stopped",
    ),
    "between two attempts it keeps its slot": (
        make_view(STOPPED | {"phase": "Pending"}, queue_position=FULL),
        "REST BackOff",
    ),
    "a draft does not wait": (make_view(queue_position=FULL, spec=ASKED_TO_STOP), "RENDER Draft"),
    "gated for longer than the start may take": (
        make_view(GATED_STATUS, pod=gated(), now=NOW + timedelta(days=9), spec={"startDeadlineSeconds": 60}),
        "REST Gated",
    ),
    "admitted after days, and no node takes it yet": (
        make_view(
            GATED_STATUS,
            pod=admitted(node="", conditions=[UNSCHEDULABLE]),
            now=NOW + timedelta(days=9),
            spec={"startDeadlineSeconds": 60},
        ),
        "REST Unschedulable",
    ),
    "admitted at a runtime with slots": (
        make_view(GATED_STATUS, pod=gated(SLOT_GATE), queue_position=FULL),
        "UNGATE PodStarting",
    ),
    "admitted while others hold the slots": (
        make_view(GATED_STATUS | QUEUED, pod=gated(SLOT_GATE), queue_position=FULL),
        "REST Gated",
    ),
    "admitted, and a slot is free again": (
        make_view(GATED_STATUS | QUEUED, pod=gated(SLOT_GATE), queue_position=ROOM),
        "UNGATE PodStarting",
    ),
    "not admitted, from before the runtime had slots": (
        make_view(GATED_STATUS, pod=gated(), queue_position=ROOM, now=NOW + timedelta(minutes=2)),
        "STOP Gated",
    ),
    "admitted, and to be stopped": (
        make_view(GATED_STATUS, pod=gated(SLOT_GATE), queue_position=ROOM, spec=ASKED_TO_STOP),
        "STOP Suspended",
    ),
    "deleted while gated, to stop the run": (
        make_view(GATED_STATUS, pod=gated(deleting=True), spec=ASKED_TO_STOP),
        "REST Stopped",
    ),
    "deleted while gated, for a deadline": (
        make_view(
            STARTED | {"conditions": [STARTED["conditions"][0] | LATE]},
            pod=gated(deleting=True),
            spec={"activeDeadlineSeconds": 60},
        ),
        "REST ActiveDeadlineExceeded",
    ),
}


@pytest.mark.parametrize(("view", "found"), DECISIONS.values(), ids=DECISIONS)
def test_decisions(view: View, found: str) -> None:
    assert f"{decide(view).name} {assess(view).reason}" == found


def test_the_position_is_removed_when_the_run_starts() -> None:
    assert derive(make_view({**STARTED, **QUEUED}), assess(make_view(STARTED))).queue is None
