"""Every transition between two situations, as data: the diagram in docs/reference/status.md is drawn from it."""

from collections.abc import Mapping
from typing import Final

from rl_operator.api.status_fields import RunStatus
from rl_operator.status.text.phase_table import TABLE, Situation

CREATED: Final = None
"""Where a run begins: the object exists, and the operator has not reconciled it yet."""

_WAITING, _REFUSED, _DRAFT = Situation.WAITING, Situation.REFUSED, Situation.DRAFT
_STARTING, _RUNNING, _STOPPING, _STOPPED = Situation.STARTING, Situation.RUNNING, Situation.STOPPING, Situation.STOPPED
_ENDING, _SUCCEEDED, _FAILED = Situation.ENDING, Situation.SUCCEEDED, Situation.FAILED

TRANSITIONS: Final[Mapping[tuple[Situation | None, Situation], str]] = {
    (CREATED, _WAITING): "accepted",
    (CREATED, _REFUSED): "refused",
    (CREATED, _DRAFT): "suspended",
    (CREATED, _STARTING): "accepted",
    (CREATED, _STOPPED): "restored from a backup",
    (_WAITING, _REFUSED): "edited",
    (_WAITING, _DRAFT): "suspended before the start",
    (_WAITING, _STARTING): "its turn, or its pause is over",
    (_WAITING, _STOPPED): "suspended after an attempt",
    (_WAITING, _FAILED): "its deadline",
    (_REFUSED, _WAITING): "fixed",
    (_REFUSED, _DRAFT): "fixed",
    (_REFUSED, _STARTING): "fixed",
    (_DRAFT, _WAITING): "resumed",
    (_DRAFT, _REFUSED): "edited",
    (_DRAFT, _STARTING): "resumed",
    (_STARTING, _RUNNING): "first group accepted",
    (_STARTING, _WAITING): "attempt lost or failed",
    (_STARTING, _STOPPING): "suspended, or a deadline",
    (_STARTING, _STOPPED): "suspended, nothing to save",
    (_STARTING, _SUCCEEDED): "trained meanwhile",
    (_STARTING, _FAILED): "no further attempt",
    (_RUNNING, _WAITING): "attempt lost or failed",
    (_RUNNING, _STOPPING): "suspended, or a deadline",
    (_RUNNING, _STOPPED): "suspended, saved at once",
    (_RUNNING, _SUCCEEDED): "all steps trained",
    (_RUNNING, _FAILED): "no further attempt",
    (_RUNNING, _ENDING): "a container has ended",
    (_ENDING, _WAITING): "attempt lost or failed",
    (_ENDING, _STOPPING): "suspended, or a deadline",
    (_ENDING, _STOPPED): "suspended, saved at once",
    (_ENDING, _SUCCEEDED): "all steps trained",
    (_ENDING, _FAILED): "no further attempt",
    (_STOPPING, _STARTING): "resumed before it was stopped",
    (_STOPPING, _RUNNING): "resumed before it was stopped",
    (_STOPPING, _WAITING): "continues from what was saved",
    (_STOPPING, _STOPPED): "saved",
    (_STOPPING, _SUCCEEDED): "trained meanwhile",
    (_STOPPING, _FAILED): "no further attempt",
    (_STOPPED, _WAITING): "resumed",
    (_STOPPED, _STARTING): "resumed",
    (_STOPPED, _REFUSED): "restored, resumed and refused",
    (_STOPPED, _DRAFT): "restored, resumed and suspended",
    (_STOPPED, _FAILED): "its deadline",
}
"""From, to, and the cause. A finished run never changes."""


def situation_of(status: RunStatus) -> Situation:
    """Which row of the table a status is built from. Raises ValueError if the status was not derived from the table."""
    conditions = {condition.type: condition.status for condition in status.conditions}
    for situation, row in TABLE.items():
        if (status.phase, conditions) == (row.phase, dict(row.conditions)):
            return situation
    raise ValueError(f"no situation has phase {status.phase} and conditions {conditions}")
