"""The three deadlines of a run, as points in time, and the one for which an attempt is being ended.

A deadline that has passed is written into the status before the pod is deleted for it, and holds from then on: if it
is edited, a clock is set back or the operator was down in between, nothing changes anymore, and a pod that someone else
deleted is never mistaken for one that missed a deadline.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from rl_operator.api.names import TRAINER_CONTAINER
from rl_operator.api.status_fields import Condition
from rl_operator.status.attempt.attempt_fate import Ending, Fate
from rl_operator.status.attempt.run_admission import admitted_time, pod_wanted_since, waits_at_gate
from rl_operator.status.attempt.view import View
from rl_operator.status.observed.observation import PodObservation, parse_time

START, PROGRESS, ACTIVE = "StartDeadlineExceeded", "ProgressDeadlineExceeded", "ActiveDeadlineExceeded"
DEADLINES: Final = frozenset({START, PROGRESS, ACTIVE})

SAVING: Final = "Stopping: the trainer saves a checkpoint."
DELETING: Final = "Stopping: the pod is deleted."


@dataclass(frozen=True, slots=True)
class Deadline:
    at: datetime
    reason: str
    message: str


def deadlines(view: View) -> Iterator[Deadline]:
    """The deadlines in force. `active` counts from startTime, also during backoff; `progress` needs a pod. `start`
    counts from the pod's creation. Without a pod it counts from when it was wanted, and matters where its creation was
    just refused: a run that waits for a slot may still be in time.
    """
    spec, status = view.run.spec, view.run.status
    start = _start(view)
    if spec.active_deadline_seconds is not None and start:
        message = f"Not finished within spec.activeDeadlineSeconds ({spec.active_deadline_seconds})."
        yield _after(start, spec.active_deadline_seconds, ACTIVE, message)
    began = pod_wanted_since(view) if view.trouble and not view.last_attempt else None
    if view.pod is None and began and spec.start_deadline_seconds is not None:
        message = f"No pod could be created within spec.startDeadlineSeconds ({spec.start_deadline_seconds})."
        yield _after(began, spec.start_deadline_seconds, START, message)
    if view.pod is None or view.pod.over or view.last_attempt or view.pause:
        return
    # Where a container has ended, the run is no longer Ready, but its start is over all the same.
    working = status.condition("Ready") or (status.condition("Reconciling") if status.phase == "Running" else None)
    counts = not working and not waits_at_gate(view) and not _to_be_asked(view, view.pod)
    if spec.start_deadline_seconds is not None and counts:
        message = f"No group was accepted within spec.startDeadlineSeconds ({spec.start_deadline_seconds})."
        yield _after(_resumed(view, _admitted(view, view.pod)), spec.start_deadline_seconds, START, message)
    since = _last_progress(view, view.pod, working) if working else None
    if spec.progress_deadline_seconds is not None and since:
        message = f"No new step within spec.progressDeadlineSeconds ({spec.progress_deadline_seconds})."
        yield _after(since, spec.progress_deadline_seconds, PROGRESS, message)


def overdue(view: View) -> Deadline | None:
    """The deadline that has passed and has not been acted on yet."""
    return next((deadline for deadline in deadlines(view) if deadline.at <= view.now), None)


def recorded(view: View) -> Condition | None:
    """What the status reports while an attempt is ended for a deadline."""
    found = view.run.status.condition("Reconciling")
    return found if found and found.reason in DEADLINES and not view.last_attempt else None


def recorded_ending(view: View) -> Ending | None:
    """The ending of an attempt that was ended for a deadline."""
    found, said = recorded(view), view.run.status.message or ""
    return (
        Ending(Fate.FINAL, found.reason, message=said.removesuffix(SAVING).removesuffix(DELETING).strip())
        if found
        else None
    )


def _after(moment: datetime, seconds: int, reason: str, message: str) -> Deadline:
    return Deadline(moment + timedelta(seconds=seconds), reason, message)


def _start(view: View) -> datetime | None:
    """When the run started in this life. A `startTime` before its creation is from the life that was backed up: then
    the oldest known attempt counts, and before the first pod no time has passed.
    """
    status, created = view.run.status, view.run.metadata.creation_timestamp
    if status.start_time is None or not view.started:
        return None
    start = parse_time(status.start_time)
    if created is None or start >= parse_time(created):
        return view.moved(start)
    if oldest := next((attempt.started for attempt in status.attempts if attempt.started), None):
        return view.moved(parse_time(oldest))
    return view.moved(view.pod.created) if view.pod else None


def _admitted(view: View, pod: PodObservation) -> datetime:
    """The earliest time at which the pod could start: a pod that was gated is not late for that.

    If Kueue admitted it while the operator was down, only the scheduler shows it: it never takes a gated pod.
    """
    admitted = admitted_time(view)
    seen = parse_time(admitted) if admitted else None
    scheduled = pod.scheduled_at if pod.queue else None
    return max(view.moved(moment) for moment in (pod.created, seen, scheduled) if moment)


def _to_be_asked(view: View, pod: PodObservation) -> bool:
    """Whether its trainer runs and is about to be asked for the first time: it may know of a pause."""
    trainer = pod.container(TRAINER_CONTAINER)
    runs = trainer is not None and trainer.state in ("Running", "Ready")
    return runs and not (view.trainer or view.unheard or view.unreachable)


def _resumed(view: View, since: datetime) -> datetime:
    """`since`, or when a later pause was over."""
    resumed = view.trainer.resumed_at if view.trainer else None
    return max(since, view.moved(parse_time(resumed))) if resumed else since


def _last_progress(view: View, pod: PodObservation, working: Condition) -> datetime | None:
    """When the last step was made, as far as known; None: unknown, and nothing is wrong.

    A trainer that the operator cannot reach (it has just begun to poll, or may not connect to pods) while the kubelet
    reports it ready is not hung. One that does not answer its kubelet either has been silent since then.
    """
    since = view.moved(parse_time(working.last_transition_time))
    if view.trainer and not view.unreachable:
        last_step = view.trainer.last_step_at
        return _resumed(view, max(since, view.moved(parse_time(last_step))) if last_step else since)
    trainer = pod.container(TRAINER_CONTAINER)
    if trainer is None or trainer.state == "Ready":
        return None
    return max(since, view.moved(pod.unready_since)) if pod.unready_since else since
