"""The write of a status, and the line of the log about it: one per change that a reader looks for."""

import logging
from typing import Final

from rl_operator.api.status_fields import Attempt, RunStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.reconcile.run_client import RunClient
from rl_operator.status.text.sentences import cut

log = logging.getLogger(__name__)


async def record_status(client: RunClient, run: TrainingRun, status: RunStatus) -> TrainingRun:
    """Logged only once it is written: a write that loses the race is another operator's to tell."""
    written = await client.write_status(run, status)
    if line := log_sentence(run, status):
        log.log(*line)
    return written


LONGEST: Final = 500
"""Characters. A message may quote what the run's own code said."""


def log_sentence(run: TrainingRun, status: RunStatus) -> tuple[int, str] | None:
    """Level and sentence, if the run begins an attempt, ends one, is over, or is refused; None for all else."""
    found = _change(run, status)
    if found is None:
        return None
    level, what = found
    return level, cut(" ".join(f"run {'/'.join(run.key)} {what}".split()), LONGEST)


def _change(run: TrainingRun, status: RunStatus) -> tuple[int, str] | None:
    before = run.status
    if status.finished:
        return None if before.finished else _end(status)
    if (ended := _ended(status)) and ended != _ended(before):
        what = f"attempt {ended.attempt} has ended after step {ended.steps}"
        return logging.INFO, f"{what}: {_with_reason(ended.reason, status.message)}"
    if status.attempt is not None and status.attempt != before.attempt:
        return logging.INFO, f"attempt {status.attempt} starts: {run.spec.environment}, pod {status.pod_name}"
    if status.refusals and status.refusals != before.refusals:
        return logging.WARNING, f"is refused: {_with_reason(status.refusals[0].code, _refused(status))}"
    return None


def _end(status: RunStatus) -> tuple[int, str]:
    reason = status.failure.reason if status.failure and status.phase == "Failed" else None
    level = logging.WARNING if status.phase == "Failed" else logging.INFO
    return level, f"is over: {status.phase}: {_with_reason(reason, status.message)}"


def _refused(status: RunStatus) -> str:
    """The message, which counts all refusals; that of a started run is about its training."""
    message = status.message or ""
    told = message.removeprefix("Refused: ")
    return told if told != message else " ".join(refusal.sentence for refusal in status.refusals)


def _with_reason(reason: str | None, message: str | None) -> str:
    """Most messages begin with their reason."""
    return message or reason or "" if reason is None or reason in (message or "") else f"{reason}: {message}"


def _ended(status: RunStatus) -> Attempt | None:
    return status.attempts[-1] if status.attempts else None
