"""Build the status: assessment, the table's row for it, and metrics (`status_metrics.py`). One author, one value."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from rl_contract.trainer_messages import TrainerResult
from rl_operator.api.hints import FROZEN
from rl_operator.api.refusal import Refusal
from rl_operator.api.status_fields import ContainerStatus, Failure, FrozenSettings, RunStatus, StartedFrom, Weights
from rl_operator.api.training_run import RunSpec, TrainingRun
from rl_operator.documents.yaml_text import json_value
from rl_operator.status.attempt.attempt_fate import Ending, Fate
from rl_operator.status.attempt.attempt_outcome import with_attempt
from rl_operator.status.attempt.environment_slots import at_start, observed
from rl_operator.status.attempt.restored import is_restored, without_former_life
from rl_operator.status.attempt.run_admission import admitted_time
from rl_operator.status.attempt.sandbox_slots import observed_sandboxes
from rl_operator.status.attempt.view import Assessment, View
from rl_operator.status.observed.history import history_map_name
from rl_operator.status.observed.observation import PodObservation, format_time, parse_time
from rl_operator.status.observed.wandb_run import at_the_end
from rl_operator.status.observed_progress import continued, with_result, with_trainer, with_wandb
from rl_operator.status.size import fit_size
from rl_operator.status.text.phase_table import TABLE, Situation, conditions_of
from rl_operator.status.text.sentences import MAX_MESSAGE, shorten

KEPT_REFUSALS = 3

STATES: Final = ("Waiting", "Running", "Ready", "Terminated")
"""A container's states, in the order in which an attempt goes through them."""


def derive(view: View, assessment: Assessment) -> RunStatus:
    if is_restored(view.run):
        view = replace(view, run=without_former_life(view.run))
    previous, pod = view.run.status, view.pod
    row = TABLE[assessment.situation]
    status = previous.with_changes(
        observed_generation=view.run.metadata.generation,
        phase=row.phase,
        message=shorten(assessment.message),
        conditions=conditions_of(
            row.conditions,
            view.run.status.conditions,
            assessment.reason,
            shorten(assessment.message),
            generation=view.run.metadata.generation,
            now=format_time(view.now),
        ),
        refusals=view.refusals[:KEPT_REFUSALS],
        config_hash=previous.config_hash if view.started else view.config_hash,
        containers=_containers(pod) or previous.containers,
        environments=observed(view),
        sandboxes=observed_sandboxes(view),
        queue=assessment.queue,
        admitted_time=admitted_time(view),
    )
    ended = view.last_attempt is not None  # later reports change nothing
    if view.trainer and not ended:
        status = with_trainer(status, view.trainer, view.now)
    if view.wandb and not ended:
        status = with_wandb(status, view.run, view.wandb, fills_in=view.wandb_fills_in, now=view.now)
    if view.result:
        status = with_result(status, view.result, view.now)
    if assessment.ending and view.has_history:
        status = status.with_changes(history_name=history_map_name(view.run))
    if assessment.ending:
        status = _with_ending(status, view, assessment, assessment.ending)
    return fit_size(status)


def started(
    view: View,
    *,
    attempt: int,
    pod_name: str,
    config_map_name: str,
    config_hash: str,
    started_from: StartedFrom | None = None,
) -> RunStatus:
    """The status that freezes the run and announces an attempt: written before anything is created."""
    # A restored run that is started again begins from scratch: its old state belongs to another uid.
    before = view.run.status if view.run.status.attempt else view.run.status.with_changes(checkpoint=None, best=None)
    before = continued(before, before.checkpoint.step if before.checkpoint else 0)
    frozen = before.with_changes(
        start_time=before.start_time or format_time(view.now),
        frozen=before.frozen if view.started else frozen_settings(view.run.spec),
        started_from=before.started_from or started_from,
        attempt=attempt,
        attempt_start_time=format_time(view.now),
        pod_name=pod_name,
        config_map_name=config_map_name,
        config_hash=config_hash,
        containers=(),
        admitted_time=None,
        environments=at_start(view.run, view.replica_limit),
        sandboxes=None,
    )
    fresh = View(
        view.run.with_changes(status=frozen),
        view.now,
        view.backoff_seconds,
        refusals=view.refusals,
        replica_limit=view.replica_limit,
    )
    return derive(fresh, Assessment(Situation.STARTING, "PodStarting", f"Creating pod {pod_name}."))


def worth_writing(previous: RunStatus, status: RunStatus, now: datetime, progress_seconds: float) -> bool:
    """Whether to write now: at once if anything other than progress changed, else paced."""
    if status == previous:
        return False
    at_once = _essence(previous) != _essence(status) or _further(previous.containers, status.containers)
    return at_once or _seconds_since_write(previous, now) >= progress_seconds


def _essence(status: RunStatus) -> tuple[object, ...]:
    """What is written at once: everything but metrics, messages, positions in the queue, the states of containers that
    have not failed, and how many sandboxes there are, after the first time that none was missing.
    """
    conditions = tuple((c.type, c.status, c.reason) for c in status.conditions)
    apart, sandboxes = status.environments, status.sandboxes
    environments = (apart.desired, apart.failures) if apart else None
    were_there = bool(sandboxes and (sandboxes.replaced or sandboxes.ready == sandboxes.desired))
    plain = (status.observed_generation, status.phase, status.start_time, status.attempt, status.pod_name)
    return (
        *plain,
        environments,
        were_there,
        status.queue is None,
        status.config_hash,
        conditions,
        status.checkpoint,
        status.best,
        status.weights,
        status.failure,
        status.attempts,
        status.refusals,
        tuple((c.name, c.exit_code) for c in status.containers if c.exit_code),
    )


def _further(previous: Sequence[ContainerStatus], containers: Sequence[ContainerStatus]) -> bool:
    """Whether a container is in a later state than the one written last. One that goes back, as when its probe fails
    for a moment, is written with the next progress: it must not cost a write each time.
    """
    before = {container.name: STATES.index(container.state) for container in previous}
    return any(STATES.index(container.state) > before.get(container.name, -1) for container in containers)


def _seconds_since_write(previous: RunStatus, now: datetime) -> float:
    """Seconds since the status was last written, as far as the status itself shows."""
    moments = [c.last_transition_time for c in previous.conditions]
    if previous.metrics and previous.metrics.observed_at:
        moments.append(previous.metrics.observed_at)
    if previous.sandboxes and previous.sandboxes.observed_at:
        moments.append(previous.sandboxes.observed_at)
    # A time in the future means that a clock was set back: nothing can be derived from it.
    return min((abs((now - parse_time(moment)).total_seconds()) for moment in moments), default=float("inf"))


def _containers(pod: PodObservation | None) -> tuple[ContainerStatus, ...]:
    if pod is None:
        return ()
    return tuple(
        ContainerStatus(name=c.name, state=c.state, exit_code=c.exit_code, reason=c.reason, restarts=c.restarts)
        for c in pod.containers
    )


def _with_ending(status: RunStatus, view: View, assessment: Assessment, ending: Ending) -> RunStatus:
    application = ending.fate is Fate.APPLICATION
    over = assessment.situation in (Situation.SUCCEEDED, Situation.FAILED)
    return status.with_changes(
        attempt=status.attempt or 1,
        attempts=with_attempt(view, ending),
        failed_attempts=(status.failed_attempts or 0) + 1 if application else status.failed_attempts,
        failure=_failure(ending),
        wandb=at_the_end(status.wandb) if status.wandb else None,
        weights=_weights(view.result) if view.result and ending.fate is Fate.SUCCEEDED else None,
        completion_time=format_time(view.now) if over else None,
    )


def _failure(ending: Ending) -> Failure | None:
    if ending.fate in (Fate.SUCCEEDED, Fate.STOPPED):
        return None
    message = shorten(ending.message, MAX_MESSAGE)
    return Failure(reason=ending.reason, container=ending.container, exit_code=ending.exit_code, message=message)


def _weights(result: TrainerResult) -> Weights | None:
    return Weights(sampler_path=result.sampler_path, state_path=result.state_path) if result.sampler_path else None


def frozen_settings(spec: RunSpec) -> FrozenSettings:
    return FrozenSettings(config=_hash(spec.config), trainer=_hash(spec.trainer))


def frozen_refusals(run: TrainingRun) -> tuple[Refusal, ...]:
    """One refusal per section that was edited after the start; none while they are unchanged. What is too large to
    be read may be what it was: nothing is said of it.
    """
    before, now = run.status.frozen, frozen_settings(run.spec)
    if before is None or before == now:
        return ()
    read = (name for name in FrozenSettings.model_fields if not run.is_unread(name))
    edited = [name for name in read if getattr(before, name) != getattr(now, name)]
    return tuple(Refusal(code="FrozenField", field=f"spec.{name}", hint=FROZEN) for name in edited)


def _hash(settings: dict[str, object]) -> str:
    """8 hex digits of the canonical JSON; 1.0 is 1, as the API server stores it."""
    canonical = json.dumps(json_value(settings), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:8]
