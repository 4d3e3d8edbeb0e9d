"""Pods that wait for admission (Kueue, or any other scheduling gate).

Kueue gates a pod by its label and lifts the gate when its queue has room. Waiting there is no fault of the run: the
start deadline begins when the gate has gone, and a gated pod that somebody deletes never was an attempt.
"""

from rl_operator.status.attempt.view import View
from rl_operator.status.observed.observation import PodObservation, format_time

GATED = "Gated"


def is_gated(pod: PodObservation) -> bool:
    """By the API server's own condition, which holds until the scheduler has looked at the pod."""
    return pod.reason == "SchedulingGated"


def gated_detail(view: View) -> tuple[str, str] | None:
    """Reason and sentence of a run whose pod is gated."""
    if view.pod is None or not is_gated(view.pod):
        return None
    if view.pod.deleting:
        return GATED, f"Pod {view.pod.name} was deleted before it was admitted: it is created again."
    queue = view.pod.queue
    who = f"Kueue admits it when queue {queue!r} has room" if queue else "the controller that set the gate removes it"
    return GATED, f"Waiting for admission: pod {view.pod.name} has a scheduling gate; {who}."


def deleted_while_gated(view: View) -> bool:
    """Whether the pod goes before it was admitted. Unless the run itself was to end, it is let go of and created
    again, as the same attempt.
    """
    return view.pod is not None and is_gated(view.pod) and view.pod.deleting


def admitted_time(view: View) -> str | None:
    """`status.admittedTime`: when the gate of the attempt's pod was first seen to be gone."""
    known, before = view.run.status.admitted_time, view.run.status.condition("Reconciling")
    if known or view.pod is None or is_gated(view.pod):
        return known
    return format_time(view.now) if before and before.reason == GATED else None
