"""What is left of attempts and runs that are over: their history is kept, their pods stay for a while and are deleted.

The order at an end is status -> history -> finalizer. A process that is killed in between leaves a status that names a
history that is missing, or covers only the attempts before: it may be missing, but is never wrong. Nothing waits for
it.
"""

import logging
from datetime import datetime

from rl_operator.api.run import TrainingRun
from rl_operator.api.status_fields import RunStatus
from rl_operator.errors import OperatorError
from rl_operator.reconcile.run_client import RunClient
from rl_operator.status.attempt.pod_cleanup import expires_at, late_pods, surplus_pods
from rl_operator.status.attempt.view import View
from rl_operator.status.final_status import is_as_written, put_back


async def restore_end(run: TrainingRun, client: RunClient, now: datetime) -> TrainingRun:
    """Put back what someone edited of a finished run's message and conditions. A cache may keep so little of one that
    was not edited that there is nothing to put back.
    """
    if is_as_written(run.status.to_wire()):
        return run
    status = put_back(run.status, run.metadata.generation, now)
    return run if status == run.status else await client.write_status(run, status)


async def acknowledge(run: TrainingRun, client: RunClient) -> TrainingRun:
    """Acknowledge an edit of a finished run, e.g. of its time to live: otherwise a client that waits for that (kstatus,
    so Flux too) would wait forever. A cache may keep little of a finished run's status, and not its own generation.
    """
    if run.status.observed_generation in (None, run.metadata.generation):
        return run
    live = await client.read_run(run.key)
    if live is None or live.metadata.uid != run.metadata.uid or not live.status.finished:
        return run
    return await client.write_status(live, live.status.with_changes(observed_generation=live.metadata.generation))


async def expire(run: TrainingRun, client: RunClient, now: datetime) -> float | None:
    """Delete a finished run whose time has come, with all that it owns; else return the seconds until then.

    Only this version of it is deleted: a run whose `ttlSecondsAfterFinished` was edited a moment ago, or that was
    deleted and created again under its name, is looked at again.
    """
    at = expires_at(run)
    if at is None:
        return None
    if now < at:
        return (at - now).total_seconds()
    await client.delete_run(run)
    ttl = run.spec.ttl_seconds_after_finished
    client.record_event(run, "Normal", "Expired", f"Deleted: spec.ttlSecondsAfterFinished ({ttl}) has passed.")
    return None


async def drop_old_pods(run: TrainingRun, client: RunClient) -> None:
    """Delete the pods of attempts that ended long ago: a bounded number is kept for logs. Late pods have no task."""
    attempts = run.status.attempts
    ended = run.status.finished or (attempts and attempts[-1].attempt == run.status.attempt)
    own = [pod for pod in client.pods(run.key) if pod.run_uid == run.metadata.uid]
    for pod in (*late_pods(own, run.status), *surplus_pods(own, None if ended else run.status.attempt)):
        await client.delete_pod(pod)


log = logging.getLogger(__name__)


async def keep_history(view: View, status: RunStatus, client: RunClient) -> None:
    """Write the history of the attempt that has just ended, if there is one. Losing it is not a failure."""
    if view.pod is None or not view.has_history:
        return
    run = view.run.with_changes(status=status)
    try:
        await client.save_history(run, view.pod)
    except OperatorError as error:
        log.warning("run %s/%s: the history of attempt %s is lost: %s", *run.key, status.attempt, error)
