"""One reconcile: load, check, render, apply, observe, derive, report.

Safe to repeat and to abandon at any point: what happened is read from the objects, never remembered. The order of
effects makes it safe: status (freezes the run) -> ConfigMaps -> NetworkPolicies, Service -> the run's pod -> pods of
separate environments -> sandboxes -> the mark -> status; at the end the pods are deleted, then status -> history ->
finalizer. A process that is killed in between leaves a status that names a history that is missing, or covers only the
attempts before: it may be missing, but is never wrong. Nothing waits for it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from rl_operator.api.names import ATTEMPT_LABEL, ENVIRONMENT_COMPONENT, SANDBOX_COMPONENT, TRAINING_COMPONENT
from rl_operator.api.refusal import Refusal
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.check.run_check import check_run, runtime_invalid, runtime_not_found
from rl_operator.operator_errors import (
    ForbiddenError,
    InvalidError,
    NameTakenError,
    OperatorError,
    TemplateChangedError,
)
from rl_operator.reconcile.attempt_steps import (
    create_missing,
    reconcile_environment_pods,
    reconcile_sandbox_pods,
    record_status,
    require_alive,
    restore_ops_policy,
    start,
    ungate,
)
from rl_operator.reconcile.frozen_run import EnvironmentUnreadError, frozen_templates, render
from rl_operator.reconcile.inputs import gather_inputs, is_quick, off_loop
from rl_operator.reconcile.left_pods import drop_old_pods, end_left_pods, end_pods, owns, release_pods
from rl_operator.reconcile.run_client import Key, RunClient
from rl_operator.render.labels import pod_labels
from rl_operator.status.attempt.attempt_outcome import vanished
from rl_operator.status.attempt.clock_gaps import NO_GAPS, ClockGaps
from rl_operator.status.attempt.environment_slots import in_force, replacement_sentence
from rl_operator.status.attempt.pod_cleanup import expires_at, with_loss
from rl_operator.status.attempt.restored import is_restored, is_unmarked, repaired
from rl_operator.status.attempt.view import Assessment, View
from rl_operator.status.derived_status import derive, frozen_refusals, worth_writing
from rl_operator.status.final_status import is_as_written, put_back
from rl_operator.status.observed.attempt_metrics import AttemptMetrics
from rl_operator.status.phase_and_action import TEMPLATE_CHANGED, Action, assess, decide, requeue_after
from rl_operator.status.text.reasons import TROUBLES


async def put_right(run: TrainingRun, client: RunClient) -> TrainingRun:
    """Restore what the pods know better than a status that someone edited."""
    status = repaired(run.status, (pod for pod in client.pods(run.key) if pod.run_uid == run.metadata.uid))
    return run if status is run.status else await client.write_status(run, status)


async def look_for_pod(view: View, client: RunClient) -> View:
    """Before treating a running pod as gone: the cache may lag behind, or its labels or owner may have been removed."""
    run, name = view.run, view.run.status.pod_name
    if name is None or not vanished(view):
        return view
    pod = await client.read_pod(run.metadata.namespace, name)
    if pod is None:
        return view
    if pod.run_uid != run.metadata.uid:
        sentence = (
            f"Pod {pod.namespace}/{name} exists and no longer belongs to this run: delete it, and the run continues"
        )
        return replace(view, trouble=("NameTaken", sentence))
    labels = pod_labels(run, TRAINING_COMPONENT) | {ATTEMPT_LABEL: str(run.status.attempt or 1)}
    await client.label_pod(pod, labels)
    return replace(view, pod=with_loss(replace(pod, attempt=run.status.attempt or 1), view.now, view.gaps))


async def restore_config(view: View, client: RunClient) -> View:
    """Restore the ConfigMaps of a run whose first pod was created. Notes in the view if that cannot be done, and if
    others are in their place: while a pod trains, nothing is made from them, and that is told all the same.

    Raises GoneError if they are gone because the run is.
    """
    run, name = view.run, view.run.status.config_map_name
    being_created = view.pod is None and not view.last_attempt
    if name is None or not view.started or is_restored(run) or being_created:
        return view
    try:
        if ("ConfigMap", name) not in client.children(run.key):
            return await _write_again(view, f"ConfigMap {run.metadata.namespace}/{name} was deleted", client)
        if view.training and not view.trouble and not client.is_verified(run):
            await frozen_templates(view, client)
    except REFUSALS as error:
        return replace(view, trouble=_trouble_of(error))
    return view


async def _write_again(view: View, lost: str, client: RunClient) -> View:
    run = view.run
    await require_alive(run, client)
    try:
        rendered = await render(view, None, client)
        if rendered.config_hash != run.status.config_hash:
            return replace(view, config_lost=f"{lost}, and runtime or environment are not what they were")
        for config_map in rendered.config_maps:
            await client.create_child(config_map)
    except (InvalidError, EnvironmentUnreadError) as error:
        return replace(view, config_lost=f"{lost}, and cannot be rendered again: {error}")
    return view


TROUBLE_SECONDS = 5.0
"""How soon a refused write (name taken, quota, admission) is retried."""

REFUSALS: Final = (NameTakenError, TemplateChangedError, EnvironmentUnreadError, ForbiddenError, InvalidError)
"""Why a child is not created, until someone else has done something."""


def _trouble_of(refusal: OperatorError) -> tuple[str, str]:
    """Reason and sentence."""
    match refusal:
        case NameTakenError():
            return "NameTaken", str(refusal)
        case TemplateChangedError():
            return TEMPLATE_CHANGED, str(refusal)
        case EnvironmentUnreadError():
            return "EnvironmentPending", str(refusal)
    return "CreationRefused", f"Not created, and tried again: {refusal}"


@dataclass(frozen=True, slots=True)
class ReconcilePace:
    """A target's pace: seconds before the second attempt, and between two writes of mere progress."""

    backoff_seconds: float
    progress_seconds: float


async def reconcile(
    key: Key,
    client: RunClient,
    clock: Callable[[], datetime],
    pace: ReconcilePace,
    gaps: Callable[[], ClockGaps] = lambda: NO_GAPS,
) -> float | None:
    """Bring one run a step closer to its end. Returns the seconds until the next look; None: on events only.

    `gaps`: where `clock` cannot be relied on, what it knows of its jumps.
    """
    run = client.run(key)
    again = await end_left_pods(key, run, client, clock())
    if run is None or run.metadata.deletion_timestamp is not None:
        return again
    if run.status.finished:
        await end_pods(run, client)
        await drop_old_pods(run, client)
        run = await restore_end(run, client, clock())
        return soonest(again, await expire(await acknowledge(run, client), client, clock()))

    run = await put_right(run, client)
    inputs = None if run.status.attempt else await gather_inputs(run, client, clock())
    view = await look_for_pod(await _observe(run, inputs, client, pace, now=clock(), gaps=gaps()), client)
    view = await _act(await restore_config(view, client), inputs, client)
    assessment = assess(view)
    unwritten = await _report(view, assessment, client, pace)
    await release_pods(view, assessment, client)
    await drop_old_pods(view.run, client)
    return soonest(
        again,
        requeue_after(view, assessment),
        pace.progress_seconds if unwritten else None,
        TROUBLE_SECONDS if view.trouble else None,
    )


async def _observe(
    run: TrainingRun,
    inputs: RunInputs | None,
    client: RunClient,
    pace: ReconcilePace,
    *,
    now: datetime,
    gaps: ClockGaps,
) -> View:
    """Gather what the caches know about a run. After the start its inputs no longer matter."""
    held = client.pods(run.key)
    pods = tuple(with_loss(pod, now, gaps) for pod in held if owns(run, pod))
    pod = next((pod for pod in pods if pod.name == run.status.pod_name), None)
    attempt_metrics = client.attempt_metrics(run, pod) if pod else AttemptMetrics()
    view = View(
        run,
        now,
        pace.backoff_seconds,
        pod=pod,
        trainer=attempt_metrics.trainer,
        unreachable=attempt_metrics.unreachable,
        unheard=attempt_metrics.unheard,
        wandb=attempt_metrics.wandb,
        has_history=attempt_metrics.has_history,
        environments=tuple(pod for pod in pods if pod.component == ENVIRONMENT_COMPONENT),
        sandboxes=tuple(pod for pod in pods if pod.component == SANDBOX_COMPONENT),
        left_over=tuple(pod.name for pod in held if not owns(run, pod) and not pod.over and not pod.deleting),
        replica_limit=_replica_limit(run, client),
        queue_position=client.queue_position(run),
        namespace_is_deleted=client.namespace_is_deleted(run.metadata.namespace),
        gaps=gaps,
    )
    if view.started:
        return replace(view, refusals=frozen_refusals(run))
    if run.faults:
        return replace(view, refusals=run.faults)
    if inputs is None:
        return replace(view, refusals=(_no_runtime(run, client),))
    refusals = check_run(run, inputs) if is_quick(run, inputs) else await off_loop(check_run, run, inputs)
    return replace(view, refusals=refusals, pending=inputs.environment.pending)


def _replica_limit(run: TrainingRun, client: RunClient) -> int | None:
    """The limit of environment processes; without its runtime a run gets no more than it has."""
    runtime = client.runtime(run.spec.runtime)
    return runtime.spec.limits.environment_replicas if runtime else in_force(run)


def _no_runtime(run: TrainingRun, client: RunClient) -> Refusal:
    fault = client.unreadable_runtime(run.spec.runtime)
    return runtime_invalid(run, fault) if fault else runtime_not_found(run, client.runtime_names())


async def _act(view: View, inputs: RunInputs | None, client: RunClient) -> View:
    """Do what is to be done now. Returns the view as it is afterwards."""
    try:
        view = await _apply(view, decide(view), inputs, client)
        await restore_ops_policy(view, client)
        await reconcile_environment_pods(view, client)
        await reconcile_sandbox_pods(view, client)
    except REFUSALS as error:
        # The status may have been written before the child was refused: continue from there, perhaps with a new
        # attempt.
        run = client.run(view.run.key) or view.run
        pod = view.pod if view.pod and view.pod.name == run.status.pod_name else None
        return replace(view, run=run, pod=pod, trouble=_trouble_of(error))
    return view


async def _apply(view: View, verb: Action, inputs: RunInputs | None, client: RunClient) -> View:
    """Carry out the action that `decide` chose for the run itself."""
    match verb:
        case Action.RENDER:
            return replace(view, config_hash=(await render(view, inputs, client)).config_hash)
        case Action.START:
            return await start(view, inputs, client)
        case Action.CREATE:
            return await create_missing(view, client)
        case Action.UNGATE if view.pod is not None:
            return await ungate(view, view.pod, client)
        case Action.REMOVE_FINALIZER if view.pod is not None:
            await client.remove_finalizer(view.pod)
        case Action.STOP if view.pod is not None:
            await client.delete_pod(view.pod)
    return view


async def _report(view: View, assessment: Assessment, client: RunClient, pace: ReconcilePace) -> bool:
    """Write the status if it has changed. Returns whether mere progress was left for later."""
    previous, status = view.run.status, derive(view, assessment)
    worth = worth_writing(previous, status, view.now, pace.progress_seconds)
    if worth:
        await record_status(client, await _mark(view, assessment, client), status)
        _tell(view, status, assessment, client)
    if assessment.ending:
        await keep_history(view, status, client)
    return status != previous and not worth


async def _mark(view: View, assessment: Assessment, client: RunClient) -> TrainingRun:
    """The run, marked before its status first says what became of its pod: until then there is nothing to repeat."""
    began = view.pod is not None or assessment.ending is not None
    if not began or not is_unmarked(view.run):
        return view.run
    try:
        return await client.mark_started(view.run)
    except InvalidError as error:  # its annotations are full: that must not keep its status from being written
        log.warning("run %s/%s cannot be marked as started: %s", *view.run.key, error)
        return view.run


def _tell(view: View, status: RunStatus, assessment: Assessment, client: RunClient) -> None:
    """One event per change of a condition's reason, per environment pod that failed, per edit without effect."""
    run = view.run
    if view.started and status.refusals and status.refusals != run.status.refusals:
        client.record_event(run, "Warning", "FrozenField", " ".join(refusal.sentence for refusal in status.refusals))
    if _failures(status) > _failures(run.status):
        client.record_event(run, "Warning", "EnvironmentFailed", replacement_sentence(view))
    before = {(c.type, c.reason) for c in run.status.conditions}
    if all((c.type, c.reason) in before for c in status.conditions):
        return
    failed = status.failure is not None and status.failure != run.status.failure
    bad = failed or assessment.reason in TROUBLES
    client.record_event(run, "Warning" if bad else "Normal", assessment.reason, assessment.message)


def _failures(status: RunStatus) -> int:
    return status.environments.failures if status.environments else 0


def soonest(*delays: float | None) -> float | None:
    return min((delay for delay in delays if delay is not None), default=None)


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
