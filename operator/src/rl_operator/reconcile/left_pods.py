"""Pods whose run or attempt is over: released once nobody reads their result anymore, deleted if they would train on,
or if they were kept long enough.
"""

from datetime import datetime
from typing import Literal

from rl_operator.api.training_run import TrainingRun
from rl_operator.reconcile.run_client import Key, RunClient
from rl_operator.status.attempt.pod_cleanup import late_pods, lost_at, surplus_pods, with_loss
from rl_operator.status.attempt.restored import is_restored
from rl_operator.status.attempt.view import Assessment, View
from rl_operator.status.observed.observation import PodObservation


def owns(run: TrainingRun | None, pod: PodObservation) -> bool:
    return run is not None and run.metadata.deletion_timestamp is None and pod.run_uid == run.metadata.uid


async def end_left_pods(key: Key, run: TrainingRun | None, client: RunClient, now: datetime) -> float | None:
    """Pods whose run is gone: their result will never be read, so they are released. What is orphaned would train on,
    so they are deleted, too; but not beside a run that was restored: whoever restored it decides about its pods.

    Returns the seconds until the next of them counts as lost.
    """
    left = [with_loss(pod, now) for pod in client.pods(key) if not owns(run, pod)]
    if run is None and any(pod.held or _works(pod) for pod in left):
        run = await client.read_run(key)  # the cache may lag behind a run that was applied again
    for pod in left:
        if not owns(run, pod):
            await _end(pod, client, delete=_is_gone(run, pod))
        if pod.lost:
            client.free_slot(pod)
    return min(((moment - now).total_seconds() for pod in left if (moment := lost_at(pod))), default=None)


async def end_pods(run: TrainingRun, client: RunClient) -> None:
    """Of a finished run: what a crash between the last status and its consequences left behind."""
    own = [pod for pod in client.pods(run.key) if owns(run, pod)]
    if any(pod.held for pod in own):
        _tell_end(await client.read_run(run.key), client)  # of finished runs, caches keep less than is reported
    for pod in own:
        await _end(pod, client, delete=True)  # also the run's own, if someone else wrote that the run is over


async def _end(pod: PodObservation, client: RunClient, *, delete: bool) -> None:
    if delete and _works(pod):
        await client.delete_pod(pod)
    if pod.held:
        await client.remove_finalizer(pod)


def _works(pod: PodObservation) -> bool:
    return not pod.over and not pod.deleting


def _is_gone(run: TrainingRun | None, pod: PodObservation) -> bool:
    """Whether the run that the pod was made for is. One whose owner was removed is still its run's, by its labels."""
    if run is None or run.metadata.deletion_timestamp is not None:
        return True
    return pod.made_for[1] not in ("", run.metadata.uid) and not is_restored(run)


def _tell_end(run: TrainingRun | None, client: RunClient) -> None:
    """Repeated: the process that wrote the end may have died before reporting it. Equal Events are one Event."""
    finished = run.status.condition("Finished") if run else None
    if run and finished:
        kind: Literal["Normal", "Warning"] = "Warning" if run.status.phase == "Failed" else "Normal"
        client.record_event(run, kind, finished.reason, run.status.message or "")


async def release_pods(view: View, assessment: Assessment, client: RunClient) -> None:
    """Of attempts whose end is in the status: also one that a crash, or a lost node, left held."""
    current = view.run.status.attempt or 1
    over = current if assessment.ending or view.last_attempt else current - 1
    for pod in client.pods(view.run.key):
        if pod.held and owns(view.run, pod) and pod.attempt <= over:
            await client.remove_finalizer(pod)


async def drop_old_pods(run: TrainingRun, client: RunClient) -> None:
    """Delete the pods of attempts that ended long ago: a bounded number is kept for logs. Late pods have no task."""
    attempts = run.status.attempts
    ended = run.status.finished or (attempts and attempts[-1].attempt == run.status.attempt)
    own = [pod for pod in client.pods(run.key) if pod.run_uid == run.metadata.uid]
    for pod in (*late_pods(own, run.status), *surplus_pods(own, None if ended else run.status.attempt)):
        await client.delete_pod(pod)
