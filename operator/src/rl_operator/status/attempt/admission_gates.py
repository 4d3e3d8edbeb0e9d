"""Pods that wait for admission (Kueue, or any other scheduling gate).

Kueue gates a pod by its label and lifts the gate when its queue has room. The wait is not the run's fault: the start
deadline begins when the gate is lifted, and a gated pod that someone deletes does not count as an attempt.
"""

from rl_operator.status.attempt.view import View
from rl_operator.status.observed.observation import PodObservation, format_time

GATED = "Gated"


def is_gated(pod: PodObservation) -> bool:
    """According to the API server's condition, which holds until the scheduler has seen the pod."""
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
    """Whether the pod is being deleted before it was admitted. Unless the run itself is to end, it is released and
    created again, as the same attempt.
    """
    return view.pod is not None and is_gated(view.pod) and view.pod.deleting


def admitted_time(view: View) -> str | None:
    """`status.admittedTime`: when the attempt's pod was first seen without its gate."""
    known, before = view.run.status.admitted_time, view.run.status.condition("Reconciling")
    if known or view.pod is None or is_gated(view.pod):
        return known
    return format_time(view.now) if before and before.reason == GATED else None
