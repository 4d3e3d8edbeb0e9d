"""When the next look at a run is worthwhile. Pure.

The last answer given for a run: an early poll gets it again, and a wait ends when something is new.
"""

import math
from datetime import timedelta
from typing import Final, Literal

from rl_operator.api.status_fields import Phase
from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import GoneError
from rl_operator.tools.agent_tool import Answer
from rl_operator.tools.call_context import CallContext, Given

SOONEST: Final = 10
LATEST: Final = 1800
"""Seconds between two looks at a training run."""

PAUSES: Final[dict[Phase, int]] = {"Pending": 15, "Starting": 15, "Stopping": 5}
"""Seconds, if something is about to happen."""

QUEUED: Final = 60
SHARE: Final = 10
"""A run is looked at about this many times in its remaining time."""

REPEATED_WAIT_SECONDS: Final = 10.0
"""Of a caller that waits in a loop for a run that rests: as long as it waits, nothing is asked."""

EARLY: Final = timedelta(seconds=60)
"""An answer replaces a new look for at most this long: a later request gets a fresh one."""


def rests(run: TrainingRun) -> bool:
    """Whether there is nothing to wait for: for a draft, even before it was reconciled."""
    return run.at_rest or run.is_draft


def next_look(run: TrainingRun) -> int | None:
    """Seconds. None: nothing happens unless someone asks for it."""
    if rests(run):
        return None
    if run.status.queue is not None:
        return QUEUED
    phase = run.status.phase or "Pending"
    if phase != "Running":
        return PAUSES.get(phase, SOONEST)
    return _while_training(run)


def _while_training(run: TrainingRun) -> int:
    """A share of the remaining time, and no sooner than the next step."""
    progress = run.status.progress
    if progress is None or progress.eta_seconds is None:
        return PAUSES["Starting"]
    wanted = max(progress.seconds_per_step or 0.0, progress.eta_seconds / SHARE)
    return round(min(max(wanted, SOONEST), LATEST))


SHORT_ID_LENGTH = 8

Until = Literal["change", "step", "finished"]


def early_answer(context: CallContext, run_id: str) -> Answer | None:
    """The last answer, while the next look is not worthwhile yet; it costs no call."""
    now = context.now()
    given = context.recent.latest(_key(context, run_id))
    if given is None or not timedelta() < given.due - now <= EARLY:  # further ahead: a clock was set back
        return None
    return given.answer | {"rate_limited": True, "next_check_in_seconds": math.ceil((given.due - now).total_seconds())}


def last_told(context: CallContext, run_id: str) -> Answer | None:
    given = context.recent.latest(_key(context, run_id))
    return given.answer if given else None


def was_told_to_rest(context: CallContext, run: TrainingRun) -> bool:
    """Whether the caller asks again, within a minute, about a run for which there is nothing to wait."""
    given = context.recent.latest(_key(context, run.metadata.name))
    if given is None or "next_check_in_seconds" in given.answer:
        return False
    return rests(run) and abs(context.now() - given.due) < EARLY


def remember(context: CallContext, answer: Answer, asked: str) -> None:
    """Under the run's name and the one that was `asked` for: a short one might mean another run by itself."""
    due = context.now() + min(timedelta(seconds=answer.get("next_check_in_seconds", 0)), EARLY)
    for name in {answer["run_id"], asked}:
        context.recent.give(_key(context, name), Given(answer, due))


def forget(context: CallContext, run: str) -> None:
    """Something was changed: the next look is worthwhile at once."""
    for name in (run, run[-SHORT_ID_LENGTH:]):
        context.recent.forget(_key(context, name))


def is_news(before: Answer, now: Answer, until: Until) -> bool:
    """Whether a caller that knows the first answer is waiting for the second one. Pure."""
    if until == "step":
        return bool(now.get("progress", {}).get("step") != before.get("progress", {}).get("step"))
    return until == "change" and _gist(now) != _gist(before)


def looked_at(context: CallContext, run: TrainingRun) -> TrainingRun:
    """The current run: one read. Raises GoneError if it has been deleted."""
    namespace, name = run.key
    manifest = context.target.run(namespace, name)
    found = TrainingRun.model_validate(manifest) if manifest else None
    if found is None or found.metadata.uid != run.metadata.uid:
        raise GoneError(f"run {name} was deleted meanwhile from namespace {namespace} of {context.target.label}")
    context.target.look_after(namespace, name)
    return found


def _gist(answer: Answer) -> tuple[object, ...]:
    """What a user would call a change: metrics and steps are not."""
    message = None if answer["status"] == "running" else answer.get("message")
    failure, evaluated = answer.get("failure", {}).get("code"), answer.get("metrics", {}).get("eval_percent_correct")
    return answer["status"], message, failure, answer.get("checkpoint_step"), answer.get("queue"), evaluated


def _key(context: CallContext, run_id: str) -> tuple[str, ...]:
    return context.caller, context.namespace, run_id
