"""The attempts of a run, from its record of them: when the next may start, and when there is none."""

import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from rl_operator.api.names import BUDGET_REACHED, TRAINER_CONTAINER
from rl_operator.api.status_fields import Attempt, RunStatus
from rl_operator.backoff import due_after, pause_seconds
from rl_operator.status.attempt.attempt_fate import Ending, Fate
from rl_operator.status.attempt.deadlines import DEADLINES
from rl_operator.status.attempt.run_admission import holds_slot
from rl_operator.status.attempt.view import View
from rl_operator.status.observed.observation import PodObservation, format_time, parse_time

FRUITLESS_ATTEMPTS: Final = 5
"""This many attempts in a row without a new step fail the run, no matter who was at fault."""

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
    if fruitless((*status.attempts, _record(view, ending))) >= FRUITLESS_ATTEMPTS:
        return f"{FRUITLESS_ATTEMPTS} attempts in a row trained no new step."
    return None


def _from_step(status: RunStatus, pod: PodObservation | None) -> int:
    if pod and pod.result and pod.result.from_step is not None:
        return pod.result.from_step
    return status.progress.from_step if status.progress else 0


def _steps(status: RunStatus, pod: PodObservation | None) -> int:
    """The step that the attempt reached, as far as known."""
    result, progress = pod.result if pod else None, status.progress
    known = progress.step if progress and progress.from_step == _from_step(status, pod) else 0
    return max(known, result.steps_trained) if result else known


def _ended(pod: PodObservation | None) -> datetime | None:
    """When the trainer ended, if known."""
    trainer = pod.container(TRAINER_CONTAINER) if pod else None
    return trainer.finished_at if trainer else None
