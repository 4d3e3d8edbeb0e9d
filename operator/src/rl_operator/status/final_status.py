"""The status of a run that is over, put back from what it says itself if someone edited its conditions or message.

Nothing else remembers how a run ended: its phase cannot be edited (the API server refuses that), and `failure` and
`weights` say the rest. What they do not confirm is left as it is.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rl_operator.api.status_fields import RunStatus
from rl_operator.status.attempt.attempt_fate import Ending, Fate
from rl_operator.status.attempt.attempt_outcome import (
    blame_sentence,
    done_sentence,
    next_run_sentence,
    success_sentence,
)
from rl_operator.status.observed.observation import format_time
from rl_operator.status.size import fit_size
from rl_operator.status.text.phase_table import TABLE, Situation, SituationRow, conditions_of, reason_of
from rl_operator.status.text.sentences import is_beginning, shorten

ROWS: Mapping[str, SituationRow] = {row.phase: row for row in (TABLE[Situation.SUCCEEDED], TABLE[Situation.FAILED])}
"""By the phase of a run that is over."""


def is_as_written(status: Mapping[str, Any]) -> bool:
    """Whether message and conditions of a finished run's status, as the API server has it, fit together. A condition's
    message may be cut (`size.py`). Who edits all of them to say the same is believed.
    """
    message, conditions = status.get("message", ""), status.get("conditions") or ()
    expected = ROWS[status["phase"]].conditions
    if {c.get("type"): c.get("status") for c in conditions} != dict(expected):
        return False
    failed = status.get("failure", {}).get("reason", "")
    if not message.startswith(failed):
        return False
    reason = failed or status["phase"]
    if any(c.get("reason") != reason_of(c["type"], c["status"], reason) for c in conditions):
        return False
    return all(is_beginning(c.get("message", ""), message) for c in conditions)


def put_back(status: RunStatus, generation: int, now: datetime) -> RunStatus:
    """Message and conditions as they follow from the rest of the status of a finished run."""
    told = _told(status)
    if told is None:
        return status
    reason, message = told
    row, at = ROWS[status.phase or ""], format_time(now)
    conditions = conditions_of(row.conditions, status.conditions, reason, message, generation=generation, now=at)
    return fit_size(status.with_changes(message=message, conditions=conditions))


def _told(status: RunStatus) -> tuple[str, str] | None:
    """Reason and message; None: someone else wrote that it is over, or what is left does not say how."""
    if status.phase == "Succeeded":
        progress = status.progress
        done = done_sentence(progress) if progress else ""
        return ("Succeeded", success_sentence(done, status.metrics, status.best)) if status.weights else None
    failure = status.failure
    if failure is None:
        return None
    ending = Ending(Fate.FINAL, failure.reason, failure.container, failure.exit_code, failure.message)
    step = status.checkpoint.step if status.checkpoint else None
    next_run = next_run_sentence(failure.reason, step, status.metrics, status.best)
    return failure.reason, shorten(blame_sentence(ending, next_run))
