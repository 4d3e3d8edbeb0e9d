"""Pods of which nobody will ever hear again: when to stop waiting for their node.

A node that vanished leaves its pods behind: the cluster marks them deleted after some minutes, and nobody but their
kubelet could say that they ended. Rules:

* A pod that should have been gone for a minute (its grace period counts already) and is not over is lost: its
  attempt ends as `NodeLost`, our finalizer goes, and the next attempt starts after its pause. A suspended run is
  Stopped; an attempt that was ended for a deadline has failed.
* Should the node come back, its kubelet may report that pod as running, then as ended. An attempt is recorded once:
  what comes later from a pod of an attempt that is over changes nothing.
* Its trainer may still train then, beside that of the next attempt. Checkpoints carry their attempt: the older
  trainer finds a newer attempt's checkpoint when it saves, and ends (tinker_atropos.trainer.checkpoints; the test is
  tests/integration/training/test_ending.py::test_an_older_attempt_ends_when_a_newer_one_has_saved).
* A pod that vanished although its run was running (somebody took our finalizer off): `PodLost`, likewise.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from rl_operator.status.observation import PodObservation

LOST_AFTER: Final = timedelta(seconds=60)


def lost_at(pod: PodObservation) -> datetime | None:
    """When the pod counts as lost, should nobody say how it ended; None: it is not being deleted, or is over."""
    return pod.delete_by + LOST_AFTER if pod.delete_by and not pod.over else None


def with_loss(pod: PodObservation, now: datetime) -> PodObservation:
    """The pod, lost when it is."""
    moment = lost_at(pod)
    return replace(pod, lost=True) if moment and moment <= now else pod
