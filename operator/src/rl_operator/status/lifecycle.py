"""What is the case with a run, and what to do next: two pure functions over the same values."""

from datetime import datetime, timedelta
from enum import Enum

from rl_operator.api.names import ENVIRONMENT_CONTAINER, TRAINER_CONTAINER
from rl_operator.api.run import Attempt
from rl_operator.status.deadlines import deadlines
from rl_operator.status.ending import Ending, Fate, classify
from rl_operator.status.environments import (
    ENVIRONMENTS_FAILED,
    any_ready,
    given_up,
    last_failure,
    plan_environments,
    replacement_sentence,
    replica_sentence,
    verdict,
)
from rl_operator.status.observation import PodObservation, parse_time
from rl_operator.status.pausing import pause_seconds
from rl_operator.status.starting import environment_trouble, starting_detail
from rl_operator.status.table import Situation
from rl_operator.status.unheard import unheard_sentence
from rl_operator.status.view import Finding, View

FRUITLESS_ATTEMPTS = 5
"""So many attempts in a row without a new step fail the run, whoever's fault they were."""

LINGER_SECONDS = 60.0
"""A pod whose trainer is done ends by itself; after this long it is deleted."""


class Verb(Enum):
    REST = "nothing to do"
    RENDER = "render a draft, to see what it would be"
    START = "freeze the run and start its next attempt"
    CREATE = "create what is missing of the current attempt"
    STOP = "delete the current attempt's pod, so that it saves and ends"


def decide(view: View) -> Verb:
    """What to do next for a run that is not finished."""
    run, pod = view.run, view.pod
    if not view.started:
        if view.refusals or view.pending:
            return Verb.REST
        return Verb.RENDER if run.spec.suspend else Verb.START
    if view.last_attempt:
        return Verb.REST if run.spec.suspend or next_attempt_due(view) > view.now else Verb.START
    if pod is None:
        return Verb.REST if run.spec.suspend else Verb.CREATE
    if pod.over or pod.deleting:
        return Verb.REST
    overdue = any(deadline.passed(view.now) for deadline in deadlines(run, pod, view.trainer))
    return Verb.STOP if run.spec.suspend or overdue or given_up(view) or _lingers(view) else Verb.REST


def find(view: View) -> Finding:
    """What is the case with a run that is not finished."""
    run, pod = view.run, view.pod
    if not view.started:
        return _before_start(view)
    if last := view.last_attempt:
        return _between_attempts(view, last)
    if pod is None and run.spec.suspend:
        return _stopped(view, Ending(Fate.STOPPED, "Stopped"))
    if pod is not None and pod.over:
        return _after_attempt(view, pod)
    if run.spec.suspend:
        return Finding(Situation.STOPPING, "Suspended", "Stopping: the trainer saves a checkpoint.")
    if ending := verdict(view):
        sentence = _blame_sentence(ending, "Stopping: the trainer saves a checkpoint.")
        return Finding(Situation.STOPPING, ENVIRONMENTS_FAILED, sentence)
    if pod is not None and (run.status.phase == "Running" or _working(view)):
        return Finding(Situation.RUNNING, "Training", _training_message(view))
    return Finding(Situation.STARTING, *starting_detail(view))


def next_attempt_due(view: View) -> datetime:
    """When the next attempt may start: exponential backoff on the ended ones."""
    last = view.run.status.attempts[-1]
    if last.reason == "Stopped":
        return view.now
    ended = parse_time(last.ended) if last.ended else view.now
    return ended + timedelta(seconds=pause_seconds(view.backoff_seconds, len(view.run.status.attempts)))


def next_look(view: View, finding: Finding) -> float | None:
    """Seconds until time alone changes something; None: only an event can."""
    moments: list[datetime] = []
    if finding.situation is Situation.WAITING and view.last_attempt:
        moments.append(next_attempt_due(view))
    moments += plan_environments(view).due
    if view.pod and not view.pod.over:
        moments += [deadline.at for deadline in deadlines(view.run, view.pod, view.trainer)]
        trainer = view.pod.container(TRAINER_CONTAINER)
        if trainer and trainer.finished_at:
            moments.append(trainer.finished_at + timedelta(seconds=LINGER_SECONDS))
    # What is past was acted on already: while a pod saves, nobody looks again and again.
    ahead = [(moment - view.now).total_seconds() for moment in moments if moment > view.now]
    return max(min(ahead), 0.1) if ahead else None


def _before_start(view: View) -> Finding:
    if view.refusals:
        first, more = view.refusals[0], len(view.refusals) - 1
        suffix = f" (and {more} more)" if more else ""
        return Finding(Situation.REFUSED, first.code, f"Refused: {first.sentence}{suffix}")
    if view.pending:
        return Finding(Situation.WAITING, *view.pending)
    if view.run.spec.suspend and not view.trouble:
        return Finding(Situation.DRAFT, "Draft", "A draft: checked and ready; set spec.suspend to false to start it.")
    return Finding(Situation.WAITING, *(view.trouble or ("Starting", "Accepted: about to start.")))


def _between_attempts(view: View, last: Attempt) -> Finding:
    if view.run.spec.suspend:
        return _stopped(view, None)
    failure = view.run.status.failure
    why = f": {failure.message or failure.reason}" if failure and last.reason != "Stopped" else ""
    return Finding(
        Situation.WAITING,
        "BackOff",
        f"Attempt {last.attempt} ended ({last.reason}{why}). The next one starts from the last checkpoint.",
    )


def _stopped(view: View, ending: Ending | None) -> Finding:
    checkpoint = view.run.status.checkpoint
    kept = f" with a checkpoint of step {checkpoint.step}" if checkpoint else ""
    return Finding(
        Situation.STOPPED, "Stopped", f"Stopped{kept}; to go on, set spec.suspend to false (rlctl run does).", ending
    )


def _after_attempt(view: View, pod: PodObservation) -> Finding:
    overdue = next((d for d in deadlines(view.run, pod, view.trainer) if d.passed(view.now)), None)
    ending = classify(pod, stop_asked=view.run.spec.suspend, verdict=verdict(view), lost=last_failure(view))
    if overdue and pod.deleting and ending.fate is Fate.INFRASTRUCTURE:
        ending = Ending(Fate.FINAL, overdue.reason, message=f"{overdue.message} {_seen(view)}".strip())
    match ending.fate:
        case Fate.SUCCEEDED:
            steps = pod.result.total_steps if pod.result else 0
            return Finding(
                Situation.SUCCEEDED, "Succeeded", f"All {steps} steps are trained and the weights are saved.", ending
            )
        case Fate.STOPPED:
            return _stopped(view, ending)
    if why := _give_up(view, ending, pod):
        return Finding(Situation.FAILED, ending.reason, _blame_sentence(ending, why), ending)
    return Finding(
        Situation.WAITING,
        "BackOff",
        _blame_sentence(ending, "The next attempt starts from the last checkpoint."),
        ending,
    )


def _give_up(view: View, ending: Ending, pod: PodObservation) -> str | None:
    """Why there is no further attempt, or None when there is one."""
    status, limit = view.run.status, view.run.spec.backoff_limit
    if ending.fate is Fate.FINAL:
        return "Trying again cannot help: mend it and start a new run."
    if ending.fate is Fate.PROGRAMME and (status.failed_attempts or 0) >= limit:
        return f"spec.backoffLimit is {limit}: no further attempt."
    steps = pod.result.steps_trained if pod.result else 0
    recent = [a.steps for a in status.attempts[-(FRUITLESS_ATTEMPTS - 1) :]]
    if len(recent) == FRUITLESS_ATTEMPTS - 1 and all(earlier >= steps for earlier in recent):
        return f"{FRUITLESS_ATTEMPTS} attempts in a row trained no new step."
    return None


def _blame_sentence(ending: Ending, consequence: str) -> str:
    who = f" in {ending.container} (exit code {ending.exit_code})" if ending.container else ""
    what = f": {ending.message.rstrip('.')}" if ending.message else ""
    return f"{ending.reason}{who}{what}. {consequence}"


def _working(view: View) -> bool:
    """Api and trainer are ready, and one environment, wherever it runs."""
    containers = view.pod.containers if view.pod else ()
    core = [c.state for c in containers if c.name != ENVIRONMENT_CONTAINER]
    return bool(core) and all(state == "Ready" for state in core) and any_ready(view)


def _lingers(view: View) -> bool:
    trainer = view.pod.container(TRAINER_CONTAINER) if view.pod else None
    if trainer is None or trainer.finished_at is None:
        return False
    return (view.now - trainer.finished_at).total_seconds() >= LINGER_SECONDS


def _training_message(view: View) -> str:
    trainer = view.trainer
    if view.unreachable:
        return unheard_sentence(view)
    if trainer is None:  # silent for now, or on its way out: what it said last still says most
        ready = view.run.status.condition("Ready")
        return ready.message if ready and ready.status == "True" else "Training."
    if trainer.total_steps and trainer.step >= trainer.total_steps:
        return "All steps are trained: saving the weights and evaluating them."
    step = f"Training: step {trainer.step} of {trainer.total_steps}."
    trouble = view.trouble or environment_trouble(view) or ("", "")
    environments = (trouble[1], replacement_sentence(view), replica_sentence(view))
    sentences = (step, trainer.waiting or "", *trainer.warnings, *environments)
    return " ".join(sentence for sentence in sentences if sentence)


def _seen(view: View) -> str:
    """What was seen last, while the run was starting or training: the likely cause of a missed deadline."""
    conditions = (view.run.status.condition(type_) for type_ in ("Reconciling", "Ready"))
    last = next((condition.message for condition in conditions if condition and condition.status == "True"), "")
    return f"Last seen: {last}" if last else ""
