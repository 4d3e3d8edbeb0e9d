"""What is taken away some time after it is over: finished runs, and the pods of attempts that ended long ago."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from rl_operator.api.names import TRAINING_COMPONENT
from rl_operator.api.run import TrainingRun
from rl_operator.status.observation import PodObservation, parse_time

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
