"""The situation of a run, and what to do next: two pure functions over the same values.

Also what is reported for a trainer that runs but that the operator cannot reach.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from rl_contract.processes import TRAINER_PORT
from rl_contract.trainer_messages import PAUSES
from rl_operator.api.names import API_CONTAINER, TRAINER_CONTAINER
from rl_operator.api.refusal import and_more
from rl_operator.status.attempt.attempt_outcome import (
    after_attempt,
    between_attempts,
    blame_sentence,
    is_spent,
    next_attempt_due,
    stop_asked,
    vanished,
)
from rl_operator.status.attempt.deadlines import DELETING, SAVING, deadlines, overdue, recorded
from rl_operator.status.attempt.environment_slots import (
    ENVIRONMENTS_FAILED,
    any_ready,
    given_up,
    plan_environments,
    replacement_sentence,
    replica_sentence,
    verdict,
)
from rl_operator.status.attempt.pod_cleanup import lost_at
from rl_operator.status.attempt.restored import is_restored, restored_finding
from rl_operator.status.attempt.run_admission import (
    deleted_while_gated,
    gives_back_at,
    is_let_start,
    is_without_our_gate,
    must_wait,
    place_in_attempt,
    queued,
)
from rl_operator.status.attempt.sandbox_slots import plan_sandboxes
from rl_operator.status.attempt.start_waits import (
    ended_sentence,
    environment_trouble,
    prepared_by,
    sandbox_sentence,
    starting_detail,
)
from rl_operator.status.attempt.view import Assessment, View
from rl_operator.status.observed.observation import PodObservation, format_time
from rl_operator.status.text.phase_table import Situation
from rl_operator.status.text.sentences import clean, joined, shorten

DRAFT_MESSAGE: Final = "Checked and ready; set spec.suspend to false to start it."

LINGER_SECONDS: Final = 60.0
"""A pod whose trainer is done ends by itself; after this time it is deleted."""

LONGEST_WAIT_SECONDS: Final = 600.0
"""While waiting for a point in time, it is checked at least this often: clocks jump."""


DELETION_SECONDS: Final = 1.0
"""The reason for ending an attempt is written first. Its pod is deleted once that write is seen, or after this time."""


TEMPLATE_CHANGED: Final = "TemplateChanged"

MAX_SEEN: Final = 300
"""Bytes of what was last seen before a deadline passed."""


class Action(Enum):
    REST = "nothing to do"
    RENDER = "render a draft, to see what it would be"
    START = "freeze the run and start its next attempt"
    CREATE = "create what is missing of the current attempt"
    UNGATE = "remove our gate from a pod that was admitted, now that its run holds a slot, or can have one"
    REMOVE_FINALIZER = "release a pod that was deleted before it was admitted, so that it can be created again"
    STOP = "delete the current attempt's pod, so that it saves and ends, or is made again"


def decide(view: View) -> Action:
    """What to do next for a run that is not finished."""
    run, pod = view.run, view.pod
    if is_restored(run):
        return Action.REST
    if not view.started:
        if view.refusals or view.pending:
            return Action.REST
        return Action.RENDER if run.spec.suspend else _next_start(view)
    if view.last_attempt or pod is None:
        spent = view.last_attempt is not None and is_spent(view, view.last_attempt.reason)
        return Action.REST if run.spec.suspend or spent or overdue(view) or view.config_lost else _next_start(view)
    if pod.over or pod.deleting:
        return Action.REMOVE_FINALIZER if _is_made_again(view) else Action.REST
    ends = run.spec.suspend or recorded(view) or given_up(view) or _lingers(view)
    if ends or is_without_our_gate(view):
        return Action.STOP
    return Action.UNGATE if is_let_start(view) else Action.REST


def _next_start(view: View) -> Action:
    if view.namespace_is_deleted:
        return Action.REST
    if view.last_attempt or not view.started:
        return Action.REST if must_wait(view) or next_attempt_due(view) > view.now else Action.START
    return Action.REST if vanished(view) else Action.CREATE


def assess(view: View) -> Assessment:
    if is_restored(view.run):
        return restored_finding(view.run, view.left_over)
    if not view.started:
        return _before_start(view)
    if last := view.last_attempt:
        return between_attempts(view, last)
    pod = view.pod
    if pod is None:
        if vanished(view) or view.run.spec.suspend or overdue(view):
            return after_attempt(view)
        return _being_created(view)
    if pod.over and not _is_made_again(view):
        return after_attempt(view)
    return replace(_of_living(view, pod), queue=place_in_attempt(view))


def _being_created(view: View) -> Assessment:
    reason, said = starting_detail(view)
    queue = place_in_attempt(view)
    if queue is None:
        return Assessment(Situation.STARTING, reason, said)
    gave = (
        f"The run gave its slot at runtime {view.run.spec.runtime!r} back at {queue.gave_back}: it starts when it can"
    )
    return Assessment(Situation.WAITING, reason, joined(gave, said), queue=queue)


def _of_living(view: View, pod: PodObservation) -> Assessment:
    if _is_made_again(view):
        return Assessment(Situation.STARTING, *starting_detail(view))
    return _stopping(view, pod) or _stopped_late(view) or _at_work(view)


def requeue_after(view: View, assessment: Assessment) -> float | None:
    """Seconds until time alone changes something; None: only an event can."""
    if assessment.situation in (Situation.STOPPED, Situation.SUCCEEDED, Situation.FAILED):
        return None
    if assessment.situation is Situation.STOPPING and view.pod and not view.pod.deleting:
        return DELETION_SECONDS
    # What is past was already acted on: while a pod saves, there is nothing to poll for.
    ahead = [(moment - view.now).total_seconds() for moment in _moments(view) if moment > view.now]
    return min(max(min(ahead), 0.1), LONGEST_WAIT_SECONDS) if ahead else None


def _moments(view: View) -> Iterator[datetime]:
    if view.last_attempt:
        yield next_attempt_due(view)
    yield from (deadline.at for deadline in deadlines(view))
    yield from plan_environments(view).due
    yield from plan_sandboxes(view).due
    if due := gives_back_at(view):
        yield due
    pod = view.pod
    if pod is None or pod.over:
        return
    yield from (moment for moment in (_done_for_long(view), lost_at(pod), prepared_by(pod)) if moment)


def _before_start(view: View) -> Assessment:
    if view.refusals:
        first = view.refusals[0]
        return Assessment(Situation.REFUSED, first.code, f"Refused: {first.sentence}{and_more(view.refusals)}")
    if view.pending:
        return Assessment(Situation.WAITING, *view.pending)
    if view.run.spec.suspend and not view.trouble:
        return Assessment(Situation.DRAFT, "Draft", DRAFT_MESSAGE)
    return _about_to_start(view)


def _about_to_start(view: View) -> Assessment:
    if view.queue_position and must_wait(view):
        return queued(view.run, view.queue_position)
    return Assessment(Situation.WAITING, *(view.trouble or ("Starting", "Accepted: about to start.")))


def _is_made_again(view: View) -> bool:
    return deleted_while_gated(view) and not recorded(view) and not stop_asked(view)


def _stopping(view: View, pod: PodObservation) -> Assessment | None:
    """A pod that is being ended, for whatever reason. The reason recorded first holds."""
    if late := recorded(view):
        return Assessment(Situation.STOPPING, late.reason, view.run.status.message or late.message)
    if view.run.spec.suspend:
        return Assessment(Situation.STOPPING, "Suspended", joined(_farewell(view), _overdue_sentence(view, pod)))
    if stop_asked(view) and pod.deleting:
        again = "spec.suspend is false again, so the next attempt starts then."
        return Assessment(Situation.STOPPING, "Suspended", joined(_farewell(view), again, _overdue_sentence(view, pod)))
    if ending := verdict(view):
        return Assessment(Situation.STOPPING, ENVIRONMENTS_FAILED, blame_sentence(ending, SAVING))
    if pod.deleting and not _done(pod):
        why = f" ({pod.disruption})" if pod.disruption else ""
        follows = "the namespace is, too" if view.namespace_is_deleted else "another attempt follows"
        words = f"Pod {pod.name} is being deleted by someone else{why}: the trainer saves, and {follows}"
        return Assessment(Situation.STOPPING, "PodDeleting", joined(words, _overdue_sentence(view, pod)))
    return None


def _stopped_late(view: View) -> Assessment | None:
    """A deadline has passed: this assessment records it, and the pod is deleted after it is written."""
    late = overdue(view)
    if late is None or (view.pod and view.pod.deleting):
        return None
    seen = shorten(_at_work(view).message, MAX_SEEN)
    return Assessment(Situation.STOPPING, late.reason, joined(late.message, f"Last seen: {seen}", _farewell(view)))


def _at_work(view: View) -> Assessment:
    if view.run.status.phase == "Running" or _working(view):
        if view.pod and ended_sentence(view.pod):
            return Assessment(Situation.ENDING, "Ending", _training_message(view))
        if view.trouble and view.trouble[0] == TEMPLATE_CHANGED:
            return Assessment(Situation.RUNNING, TEMPLATE_CHANGED, f"{view.trouble[1]} Training continues.")
        return Assessment(Situation.RUNNING, _training_reason(view), _training_message(view))
    return Assessment(Situation.STARTING, *starting_detail(view))


def _farewell(view: View) -> str:
    """What a pod does when it is deleted: one whose trainer never ran has nothing to save."""
    trainer = view.pod.container(TRAINER_CONTAINER) if view.pod else None
    return SAVING if trainer and trainer.state in ("Running", "Ready") else DELETING


def _overdue_sentence(view: View, pod: PodObservation) -> str:
    """A pod that should be gone by now: its node may be."""
    lost = lost_at(pod)
    if pod.delete_by is None or lost is None or pod.delete_by > view.now:
        return ""
    due = format_time(pod.delete_by)
    return f"The pod was to be gone by {due}: unless node {pod.node} answers, it counts as lost at {format_time(lost)}."


def _working(view: View) -> bool:
    """Api and trainer are ready, and at least one environment, wherever it runs."""
    containers = view.pod.containers if view.pod else ()
    core = [c.state for c in containers if c.name in (API_CONTAINER, TRAINER_CONTAINER)]
    return bool(core) and all(state == "Ready" for state in core) and any_ready(view)


def _done(pod: PodObservation) -> bool:
    trainer = pod.container(TRAINER_CONTAINER)
    return trainer is not None and trainer.state == "Terminated"


def _done_for_long(view: View) -> datetime | None:
    """When a pod whose trainer is done should have ended by itself."""
    trainer = view.pod.container(TRAINER_CONTAINER) if view.pod else None
    finished = trainer.finished_at if trainer else None
    return view.moved(finished) + timedelta(seconds=LINGER_SECONDS) if finished else None


def _lingers(view: View) -> bool:
    due = _done_for_long(view)
    # Far ahead: a clock was set back.
    return due is not None and (due <= view.now or due > view.now + timedelta(seconds=2 * LINGER_SECONDS))


def _training_reason(view: View) -> str:
    """Of a trainer that is silent for now, the last report is still the best."""
    if view.pause:
        return view.pause.cause
    before = view.run.status.condition("Ready")
    silent = view.trainer is None and not view.unreachable and not view.config_lost
    return before.reason if silent and before and before.reason in PAUSES else "Training"


def _training_message(view: View) -> str:
    trainer = view.trainer
    if ended := ended_sentence(view.pod) if view.pod else "":
        return joined(ended, view.pause.sentence if view.pause else "")
    if view.config_lost:
        return f"{view.config_lost}. Training continues; there will be no further attempt."
    if view.unreachable:
        return unheard_sentence(view)
    if trainer is None:  # silent for now: its last report is still the best
        status, before = view.run.status, view.run.status.condition("Ready")
        forged = before is not None and before.reason == TEMPLATE_CHANGED  # no longer
        return status.message if status.message and status.phase == "Running" and not forged else "Training."
    if trainer.pause:
        step = f"Training: step {trainer.step} of {trainer.total_steps}." if trainer.total_steps else ""
        return joined(trainer.pause.sentence, step, *trainer.warnings)
    if trainer.stopped_early:
        why = clean(trainer.stopped_early)
        return f"Training stopped early at step {trainer.step}: {why}. The weights are being saved and evaluated."
    if trainer.total_steps and trainer.step >= trainer.total_steps:
        return "All steps are trained: saving the weights and evaluating them."
    step = f"Training: step {trainer.step} of {trainer.total_steps}."
    trouble = view.trouble or environment_trouble(view) or ("", "")
    environments = (replacement_sentence(view), trouble[1], replica_sentence(view), sandbox_sentence(view))
    return joined(step, trainer.waiting or "", *trainer.warnings, *environments)


def unheard_sentence(view: View) -> str:
    """Reported as long as it lasts, unchanged: what is shown instead, the likely cause, and what to do."""
    pod, progress = view.pod, view.run.status.progress
    wandb = view.wandb if view.wandb_fills_in else None
    step = max(progress.step if progress else 0, (wandb.step or 0) if wandb else 0)
    training = f"Training: step {step} or later." if step else "Training."
    source = "come from W&B meanwhile" if wandb else "come with the result, at the end"
    return (
        f"{training} The operator cannot read the metrics of pod {pod.name if pod else '-'} (port {TRAINER_PORT}), "
        f"though its trainer is ready: strict mTLS, a network policy, or an operator outside the cluster. They "
        f"{source}; to see them sooner, let the operator reach that port."
    )
