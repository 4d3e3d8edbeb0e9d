"""Pods that come too late: a call that was long on its way creates one after its attempt has ended."""

from collections.abc import Iterable

from rl_operator.api.names import TRAINING_COMPONENT
from rl_operator.api.run import RunStatus
from rl_operator.status.observation import PodObservation


def late_pods(pods: Iterable[PodObservation], status: RunStatus) -> tuple[PodObservation, ...]:
    """The run's own pods that still work, or are about to, for an attempt whose end is in the status.

    Mostly its name is taken and nothing is created; but a person may have deleted the pod that had it.
    """
    ended = max((attempt.attempt for attempt in status.attempts), default=0)
    own = (pod for pod in pods if pod.component == TRAINING_COMPONENT and pod.attempt <= ended)
    return tuple(pod for pod in own if not pod.over and not pod.deleting)
