"""A status that somebody edited by hand must not start anything twice: the pods say how far the run is."""

from collections.abc import Iterable

from rl_operator.api.names import TRAINING_COMPONENT
from rl_operator.api.run import RunStatus
from rl_operator.status.observation import PodObservation, format_time


def repaired(status: RunStatus, pods: Iterable[PodObservation]) -> RunStatus:
    """The status, at least at the newest attempt that one of the run's own pods belongs to.

    The operator counts an attempt before it creates its pod. So a pod of a later attempt than the status knows of says
    that the status was set back, and that what would be started now may be running already.
    """
    attempts = [pod for pod in pods if pod.component == TRAINING_COMPONENT]
    newest = max(attempts, key=lambda pod: pod.attempt, default=None)
    if newest is None or newest.attempt <= (status.attempt or 0):
        return status
    return status.with_changes(
        start_time=status.start_time or format_time(newest.created), attempt=newest.attempt, pod_name=newest.name
    )
