"""What is deleted some time after it is over: finished runs, and the pods of attempts that ended long ago.

Also pods that will never be reported on again: when to stop waiting for their node.

A node that vanished leaves its pods behind: the cluster marks them deleted after some minutes, and only their kubelet
could report that they ended. Rules:

* A pod that should have been gone for a minute (its grace period is already included) and is not over is lost: its
  attempt ends as `NodeLost`, our finalizer is removed, and the next attempt starts after its pause. A suspended run is
  Stopped; an attempt that was ended for a deadline has failed.
* If the node comes back, its kubelet may report that pod as running, then as ended. An attempt is recorded once: later
  reports from a pod of an attempt that is over change nothing.
* Its trainer may still be training then, next to that of the next attempt. Checkpoints carry their attempt: the older
  trainer finds a newer attempt's checkpoint when it saves, and ends
  (tinker_atropos.trainer.backend.stored_checkpoints; the test is
  tests/integration/training/test_ending.py::test_an_older_attempt_ends_when_a_newer_one_has_saved).
* A pod that vanished while its run was running (someone removed our finalizer): `PodLost`, with the same consequences.

Pods that come too late: a delayed call creates one after its attempt has ended.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from rl_operator.api.names import TRAINING_COMPONENT
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.attempt.clock_gaps import NO_GAPS, ClockGaps
from rl_operator.status.observed.observation import PodObservation, parse_time

KEPT_PODS = 5
"""The newest attempts that ended: their logs stay readable. The status keeps as many attempts."""


def expires_at(run: TrainingRun) -> datetime | None:
    """When to delete a finished run: its end plus `ttlSecondsAfterFinished`, by their current values; None: never."""
    ttl, completed = run.spec.ttl_seconds_after_finished, run.status.completion_time
    if not run.status.finished or ttl is None or completed is None:
        return None
    return parse_time(completed) + timedelta(seconds=ttl)


def surplus_pods(pods: Iterable[PodObservation], current: int | None) -> tuple[PodObservation, ...]:
    """The run's own pods that are no longer needed. `current` is the attempt that has not ended; None: all have.

    A pod that is still held has a result that has not been read.
    """
    ended = [p for p in pods if p.component == TRAINING_COMPONENT and (current is None or p.attempt < current)]
    newest = sorted(ended, key=lambda pod: pod.attempt, reverse=True)
    return tuple(pod for pod in newest[KEPT_PODS:] if not pod.held and not pod.deleting)


LOST_AFTER: Final = timedelta(seconds=60)


def lost_at(pod: PodObservation) -> datetime | None:
    """When the pod counts as lost if its end is not reported; None: it is not being deleted, or is over."""
    return pod.delete_by + LOST_AFTER if pod.delete_by and not pod.over else None


def with_loss(pod: PodObservation, now: datetime, gaps: ClockGaps = NO_GAPS) -> PodObservation:
    if pod.delete_by and pod.deleted_at:
        pod = replace(pod, delete_by=pod.delete_by + (gaps.moved(pod.deleted_at, now) - pod.deleted_at))
    moment = lost_at(pod)
    return replace(pod, lost=True) if moment and moment <= now else pod


def late_pods(pods: Iterable[PodObservation], status: RunStatus) -> tuple[PodObservation, ...]:
    """The run's own pods that still run, or are about to, for an attempt whose end is in the status.

    Mostly its name is taken and nothing is created; but a user may have deleted the pod that had it.
    """
    ended = max((attempt.attempt for attempt in status.attempts), default=0)
    own = (pod for pod in pods if pod.component == TRAINING_COMPONENT and pod.attempt <= ended)
    return tuple(pod for pod in own if (not pod.over or pod.left_to_others) and not pod.deleting)
