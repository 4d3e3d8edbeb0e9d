"""What is taken away some time after it is over: finished runs, and the pods of attempts that ended long ago.

Pods of which nobody will ever hear again: when to stop waiting for their node.

A node that vanished leaves its pods behind: the cluster marks them deleted after some minutes, and nobody but their
kubelet could say that they ended. Rules:

* A pod that should have been gone for a minute (its grace period counts already) and is not over is lost: its
  attempt ends as `NodeLost`, our finalizer goes, and the next attempt starts after its pause. A suspended run is
  Stopped; an attempt that was ended for a deadline has failed.
* Should the node come back, its kubelet may report that pod as running, then as ended. An attempt is recorded once:
  what comes later from a pod of an attempt that is over changes nothing.
* Its trainer may still train then, beside that of the next attempt. Checkpoints carry their attempt: the older
  trainer finds a newer attempt's checkpoint when it saves, and ends
  (tinker_atropos.trainer.backend.stored_checkpoints; the test is
  tests/integration/training/test_ending.py::test_an_older_attempt_ends_when_a_newer_one_has_saved).
* A pod that vanished although its run was running (somebody took our finalizer off): `PodLost`, likewise.

Pods that come too late: a call that was long on its way creates one after its attempt has ended.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from rl_operator.api.names import TRAINING_COMPONENT
from rl_operator.api.run import RunStatus, TrainingRun
from rl_operator.status.observed.observation import PodObservation, parse_time

KEPT_PODS = 5
"""Of attempts that ended, the newest ones: their logs stay readable. As many attempts stay in status."""


def expires_at(run: TrainingRun) -> datetime | None:
    """When a finished run is to be deleted: `ttlSecondsAfterFinished` after its end, as both are now; None: never."""
    ttl, completed = run.spec.ttl_seconds_after_finished, run.status.completion_time
    if not run.status.finished or ttl is None or completed is None:
        return None
    return parse_time(completed) + timedelta(seconds=ttl)


def surplus_pods(pods: Iterable[PodObservation], current: int | None) -> tuple[PodObservation, ...]:
    """The run's own pods that nobody needs any more. `current` is the attempt that has not ended; None: all have.

    A pod that is still held has a result that nobody has read.
    """
    ended = [p for p in pods if p.component == TRAINING_COMPONENT and (current is None or p.attempt < current)]
    newest = sorted(ended, key=lambda pod: pod.attempt, reverse=True)
    return tuple(pod for pod in newest[KEPT_PODS:] if not pod.held and not pod.deleting)


LOST_AFTER: Final = timedelta(seconds=60)


def lost_at(pod: PodObservation) -> datetime | None:
    """When the pod counts as lost, should nobody say how it ended; None: it is not being deleted, or is over."""
    return pod.delete_by + LOST_AFTER if pod.delete_by and not pod.over else None


def with_loss(pod: PodObservation, now: datetime) -> PodObservation:
    """The pod, lost when it is."""
    moment = lost_at(pod)
    return replace(pod, lost=True) if moment and moment <= now else pod


def late_pods(pods: Iterable[PodObservation], status: RunStatus) -> tuple[PodObservation, ...]:
    """The run's own pods that still work, or are about to, for an attempt whose end is in the status.

    Mostly its name is taken and nothing is created; but a person may have deleted the pod that had it.
    """
    ended = max((attempt.attempt for attempt in status.attempts), default=0)
    own = (pod for pod in pods if pod.component == TRAINING_COMPONENT and pod.attempt <= ended)
    return tuple(pod for pod in own if not pod.over and not pod.deleting)
