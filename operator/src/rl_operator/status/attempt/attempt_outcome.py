"""The situation once an attempt is over: how it ended, and what follows. Whether and when there is another one follows
from the record of attempts.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from rl_contract.status_metrics import RunMetrics
from rl_contract.trainer_messages import BestCheckpoint, RunCost, TrainerResult
from rl_operator.api.names import BUDGET_REACHED, TRAINER_CONTAINER
from rl_operator.api.status_fields import Attempt, Progress, RunStatus
from rl_operator.backoff import due_after, pause_seconds
from rl_operator.status.attempt.attempt_fate import (
    BACKEND_UNREACHABLE,
    CHECKPOINT_LOST,
    DIVERGED,
    Ending,
    Fate,
    classify,
)
from rl_operator.status.attempt.deadlines import ACTIVE, DEADLINES, deadlines, overdue, recorded_ending
from rl_operator.status.attempt.environment_slots import last_failure, verdict
from rl_operator.status.attempt.run_admission import holds_slot, must_wait, queued
from rl_operator.status.attempt.view import Assessment, View
from rl_operator.status.observed.observation import PodObservation, format_time, parse_time
from rl_operator.status.text.figure_text import money_spent
from rl_operator.status.text.phase_table import Situation
from rl_operator.status.text.sentences import clean, joined

CONFIG_LOST: Final = "ConfigLost"


def vanished(view: View) -> bool:
    """Whether the pod of an attempt that was seen running no longer exists. If it was only starting, nothing is lost:
    it is created again.
    """
    known = view.pod or view.last_attempt or view.trouble  # trouble: someone else's pod has its name
    return not known and view.run.status.phase in ("Running", "Stopping")


def stop_asked(view: View) -> bool:
    """Whether the attempt is being ended for `spec.suspend`: also if that is reverted while it saves."""
    before = view.run.status.condition("Reconciling")
    return view.run.spec.suspend or (before is not None and before.reason == "Suspended" and not view.last_attempt)


def after_attempt(view: View) -> Assessment:
    """The only moment in which an attempt's end is assessed."""
    ending = _ending(view)
    if ending.fate is Fate.SUCCEEDED:
        done = done_sentence(view.result) if view.result else ""
        sentence = success_sentence(done, _last_metrics(view), _best(view))
        return Assessment(Situation.SUCCEEDED, "Succeeded", sentence, ending)
    why = no_further(view, ending)
    if why is not None:
        sentence = blame_sentence(ending, joined(why, _how_to_go_on(view, ending)))
        return Assessment(Situation.FAILED, ending.reason, sentence, ending)
    status = view.run.status.with_changes(attempts=with_attempt(view, ending))
    after = replace(view, run=view.run.with_changes(status=status))
    return between_attempts(after, status.attempts[-1], ending)


def between_attempts(view: View, last: Attempt, ending: Ending | None = None) -> Assessment:
    """A run whose current attempt is recorded. `ending` is set if this assessment is to record it."""
    if view.run.spec.suspend:
        return stopped(view, ending)
    if is_spent(view, last.reason):
        return Assessment(Situation.STOPPED, BUDGET_REACHED, budget_sentence(view, _checkpoint_step(view)), ending)
    late = overdue(view)
    if late and ending is None:
        final = Ending(Fate.FINAL, late.reason, message=joined(late.message, f"Last seen: {_seen_between(view, last)}"))
        return Assessment(Situation.FAILED, late.reason, blame_sentence(final, _how_to_go_on(view, final)), final)
    if view.config_lost and ending is None:
        final = Ending(Fate.FINAL, CONFIG_LOST, message=view.config_lost)
        return Assessment(Situation.FAILED, CONFIG_LOST, blame_sentence(final, _how_to_go_on(view, final)), final)
    if view.queue_position and must_wait(view):
        return queued(view.run, view.queue_position)
    if view.namespace_is_deleted:
        words = blame_sentence(ending or _recorded(view, last), "The namespace is being deleted, and the run with it.")
        return Assessment(Situation.WAITING, "BackOff", words, ending)
    if last.reason in RESUMABLE:
        return Assessment(
            Situation.WAITING, "Resuming", f"Resumed: the next attempt starts {_from_where(view, last)}.", ending
        )
    due = format_time(next_attempt_due(view))
    follows = f"Attempt {last.attempt + 1} starts at {due} {_from_where(view, last)}."
    return Assessment(Situation.WAITING, "BackOff", blame_sentence(ending or _recorded(view, last), follows), ending)


def _seen_between(view: View, last: Attempt) -> str:
    """What a run without an attempt was waiting for when its time was up."""
    if view.queue_position and must_wait(view):
        return queued(view.run, view.queue_position).message
    failure = view.run.status.failure
    return f"attempt {last.attempt} ended ({failure.reason if failure else last.reason})"


RESUME: Final = "set spec.suspend to false (rlctl resume %s)"


def stopped(view: View, ending: Ending | None) -> Assessment:
    """Suspended, and nothing runs. If it ended for another reason before the stop, that is included."""
    failure = ending if ending and ending.fate is not Fate.STOPPED else None
    step = _checkpoint_step(view)
    kept = f"Stopped with a checkpoint of step {step}" if step is not None else "Stopped before the first checkpoint"
    late = next((deadline for deadline in deadlines(view) if deadline.reason == ACTIVE), None)
    raised = "raise spec.activeDeadlineSeconds, which has passed, and " if late and late.at <= view.now else ""
    name = view.run.metadata.name
    sentence = f"{kept}; to resume, {raised}{RESUME % name}."
    why = f"{blame_sentence(failure, '')}" if failure else ""
    return Assessment(Situation.STOPPED, "Stopped", joined(sentence, why), ending)


def blame_sentence(ending: Ending, consequence: str) -> str:
    """What happened, where, with the quoted message, and what follows."""
    code = f" (exit code {ending.exit_code})" if ending.exit_code is not None else ""
    who = f" in {ending.container}{code}" if ending.container else ""
    what = f": {ending.message.rstrip('.')}" if ending.message else ""
    return joined(f"{ending.reason}{who}{what}", consequence)


def _ending(view: View) -> Ending:
    """A deadline that was recorded overrides whatever the pod did afterwards, except success and final failures."""
    late = recorded_ending(view)
    if view.pod is not None:
        asked, environments = stop_asked(view), verdict(view)
        ending = classify(view.pod, stop_asked=asked, verdict=environments, lost=last_failure(view))
    else:
        ending = _ending_without_pod(view)
    if ending.reason == CHECKPOINT_LOST and view.run.spec.on_lost_checkpoint == "Restart":
        ending = replace(ending, fate=Fate.INFRASTRUCTURE)
    return late if late and ending.fate not in (Fate.SUCCEEDED, Fate.FINAL) else ending


def _ending_without_pod(view: View) -> Ending:
    if stop_asked(view):
        return Ending(Fate.STOPPED, "Stopped")
    if vanished(view):
        words = f"Pod {view.run.status.pod_name} no longer exists and left no message: someone removed it by force."
        return verdict(view) or Ending(Fate.INFRASTRUCTURE, "PodLost", message=words)
    late, seen = overdue(view), view.trouble[1] if view.trouble else "its pod was not created yet"
    reason, words = (late.reason, late.message) if late else (ACTIVE, "")
    return Ending(Fate.FINAL, reason, message=joined(words, f"Last seen: {seen}"))


def _recorded(view: View, last: Attempt) -> Ending:
    """The ending as recorded in the status: the fate was decided when it was observed."""
    failure = view.run.status.failure
    if failure is None or failure.reason != last.reason:
        return Ending(Fate.INFRASTRUCTURE, last.reason or "")
    return Ending(Fate.INFRASTRUCTURE, failure.reason, failure.container, failure.exit_code, failure.message)


def _how_to_go_on(view: View, ending: Ending) -> str:
    return next_run_sentence(ending.reason, _checkpoint_step(view), _last_metrics(view), _best(view))


def _last_metrics(view: View) -> RunMetrics | None:
    result = view.result
    return result.metrics if result and result.metrics.held_out is not None else view.run.status.metrics


def _best(view: View) -> BestCheckpoint | None:
    """The best weights, even if only the pod's result reports them so far."""
    return (view.result.best_checkpoint if view.result else None) or view.run.status.best


def done_sentence(told: TrainerResult | Progress) -> str:
    """How a run that succeeded ended: after all its steps, or before that for a reason."""
    if told.stopped_early is None:
        return f"All {told.total_steps} steps are trained and the weights are saved."
    step = told.step if isinstance(told, Progress) else told.steps_trained
    return f"Stopped early at step {step}: {clean(told.stopped_early)}. The weights are saved."


def success_sentence(done: str, metrics: RunMetrics | None, best: BestCheckpoint | None) -> str:
    """`metrics`, `best`: the last ones of the run."""
    last = metrics.held_out if metrics else None
    if best is None or last is None or not best.held_out.is_above(last):
        return done
    when = "in the last evaluation" if last.step is None else f"after step {last.step}"
    return (
        f"{done} Those of step {best.step} are better: held-out {best.held_out.value:.3g}, and "
        f"{last.value:.3g} {when}. rlctl sample and export take them with --best."
    )


def next_run_sentence(
    reason: str, checkpoint_step: int | None, metrics: RunMetrics | None, best: BestCheckpoint | None
) -> str:
    """How to continue after a run that failed for `reason`, with a checkpoint of that step. Weights that have diverged
    are nothing to continue from; the best ones may be, if they are better than the first.
    """
    if reason == CHECKPOINT_LOST:
        return "Start a new run; with spec.onLostCheckpoint: Restart it would train the lost steps again."
    if reason == DIVERGED:
        first = metrics.baseline if metrics else None
        if best is None or first is None or best.held_out.value <= first.value:
            return "Start a new run from the beginning."
        return f"Or start from the best weights, of step {best.step} (held-out {best.held_out.value:.3g}; status.best)."
    if checkpoint_step is None:
        return "Fix that and start a new run."
    return f"The checkpoint of step {checkpoint_step} is kept: a new run can start from it (spec.startFrom)."


def _from_where(view: View, last: Attempt) -> str:
    if last.reason == CHECKPOINT_LOST:
        return "from what is left of its checkpoints"
    step = _checkpoint_step(view)
    return f"from the checkpoint of step {step}" if step is not None else "from step 0"


def _checkpoint_step(view: View) -> int | None:
    """The step of the newest checkpoint, even if only the pod's result reports it so far."""
    result, checkpoint = view.result, view.run.status.checkpoint
    if result and result.state_path:
        return result.steps_trained
    return checkpoint.step if checkpoint else None


RAISE: Final = "raise spec.budget (rlctl resume %s --budget AMOUNT)"


def is_spent(view: View, reason: str | None) -> bool:
    """`reason`: how the newest attempt ended. It kept to the budget of its start; the run may have another one now."""
    cost, budget = cost_so_far(view), view.run.spec.budget
    if reason != BUDGET_REACHED or budget is None:
        return False
    return cost is None or cost.budget is None or budget.amount <= cost.budget


def budget_sentence(view: View, checkpoint_step: int | None) -> str:
    """What was spent, where the run stands, and how it goes on."""
    cost, progress, result = cost_so_far(view), view.run.status.progress, view.result
    spent = f": {money_spent(cost.amount, cost.currency, cost.budget)} spent" if cost else ""
    steps = result.total_steps if result else progress.total_steps if progress else 0
    total = f" of {steps}" if steps else ""
    kept = (
        f"with a checkpoint of step {checkpoint_step}{total}" if checkpoint_step is not None else "without a checkpoint"
    )
    name = view.run.metadata.name
    return f"BudgetReached{spent}. Stopped {kept}; to go on, {RAISE % name}."


def cost_so_far(view: View) -> RunCost | None:
    """Even if only the pod's result reports it so far."""
    result, before = view.result, view.run.status.cost
    return result.cost.after(before) if result and result.cost else before


FRUITLESS_ATTEMPTS: Final = 5
"""This many attempts in a row without a new step fail the run. Those that ended because the backend was away are left
out: they show nothing of the run, and its activeDeadlineSeconds bounds them.
"""

KEPT_ATTEMPTS: Final = 5

RESUMABLE: Final = ("Stopped", BUDGET_REACHED)
"""Ends of attempts after which a user decides when the next one starts."""


def with_attempt(view: View, ending: Ending) -> tuple[Attempt, ...]:
    """The record including the attempt that ends now. An attempt is recorded once, whatever its pod reports later."""
    attempts = view.run.status.attempts
    return attempts if view.last_attempt else (*attempts, _record(view, ending))[-KEPT_ATTEMPTS:]


def _record(view: View, ending: Ending) -> Attempt:
    status, pod = view.run.status, view.pod
    return Attempt(
        attempt=status.attempt or 1,
        pod=status.pod_name or "",
        started=format_time(pod.created) if pod else None,
        ended=format_time(_ended(pod) or view.now),
        reason=ending.reason,
        from_step=_from_step(status, pod),
        steps=_steps(status, pod),
    )


def next_attempt_due(view: View) -> datetime:
    """When the next attempt may start: the pause doubles with every attempt in a row that trained no new step."""
    attempts, last = view.run.status.attempts, view.last_attempt
    # A user who resumes a stopped run should not have to wait.
    if last is None or last.reason in RESUMABLE or last.ended is None or not holds_slot(view.run):
        return view.now
    pause = pause_seconds(view.backoff_seconds, max(1, fruitless(attempts)))
    return due_after(parse_time(last.ended), pause, view.now)


def fruitless(attempts: Sequence[Attempt]) -> int:
    """How many of the latest attempts in a row trained no new step. One that was stopped on request ends the row."""
    count = 0
    for number in range(len(attempts) - 1, -1, -1):
        attempt = attempts[number]
        if number == 0 and attempt.attempt != 1:  # earlier attempts are not kept
            break
        if attempt.reason in RESUMABLE or attempt.steps > _furthest_before(attempts[: number + 1]):
            break
        count += 1
    return count


def _furthest_before(attempts: Sequence[Attempt]) -> int:
    """The furthest step that the last of these attempts had behind it. One that had to begin earlier than the attempt
    before it, because a checkpoint was lost, starts the count again.
    """
    furthest = 0
    for before, attempt in itertools.pairwise(attempts):
        furthest = attempt.from_step if attempt.from_step < before.from_step else max(furthest, before.steps)
    return furthest


def no_further(view: View, ending: Ending) -> str | None:
    """Why there is no attempt after this ending, which is not recorded yet; None if there is one. A deadline is its
    own reason.
    """
    status, limit = view.run.status, view.run.spec.backoff_limit
    if ending.fate is Fate.FINAL:
        return "" if ending.reason in DEADLINES else "Trying again cannot help."
    if ending.fate is Fate.APPLICATION and (status.failed_attempts or 0) >= limit:
        return f"spec.backoffLimit is {limit}: no further attempt."
    record = (*status.attempts, _record(view, ending))
    row = record[len(record) - fruitless(record) :]
    if sum(attempt.reason != BACKEND_UNREACHABLE for attempt in row) >= FRUITLESS_ATTEMPTS:
        return f"{FRUITLESS_ATTEMPTS} attempts in a row trained no new step."
    return None


def _from_step(status: RunStatus, pod: PodObservation | None) -> int:
    if pod and pod.result and pod.result.from_step is not None:
        return pod.result.from_step
    return status.progress.from_step if status.progress else 0


def _steps(status: RunStatus, pod: PodObservation | None) -> int:
    result, progress = pod.result if pod else None, status.progress
    known = progress.step if progress and progress.from_step == _from_step(status, pod) else 0
    return max(known, result.steps_trained) if result else known


def _ended(pod: PodObservation | None) -> datetime | None:
    trainer = pod.container(TRAINER_CONTAINER) if pod else None
    return trainer.finished_at if trainer else None
