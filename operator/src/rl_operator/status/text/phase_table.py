"""Phases and conditions, as data: one row per situation. Docs and tests are generated from this table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from rl_operator.api.status_fields import Condition, Phase


class Situation(Enum):
    WAITING = "not started yet, or between two attempts"
    REFUSED = "refused until spec, runtime or environment is fixed"
    DRAFT = "suspended before the start: checked, nothing started"
    STARTING = "pod created, not all of it working"
    RUNNING = "first group accepted by the trainer, steps counted"
    ENDING = "a container of the attempt has ended, the others follow"
    STOPPING = "suspend asked, saving"
    STOPPED = "stopped with a checkpoint; resumable"
    SUCCEEDED = "weights exist, all steps trained"
    FAILED = "over without success"


@dataclass(frozen=True, slots=True)
class SituationRow:
    """The phase, and the conditions by type; types not named are absent (kstatus: abnormal ones only when true)."""

    phase: Phase
    conditions: Mapping[str, Literal["True", "False"]]


TABLE: Mapping[Situation, SituationRow] = {
    Situation.WAITING: SituationRow("Pending", {"Accepted": "True", "Reconciling": "True"}),
    Situation.REFUSED: SituationRow("Pending", {"Accepted": "False", "Stalled": "True"}),
    Situation.DRAFT: SituationRow("Draft", {"Accepted": "True", "Suspended": "True"}),
    Situation.STARTING: SituationRow("Starting", {"Accepted": "True", "Reconciling": "True"}),
    Situation.RUNNING: SituationRow("Running", {"Accepted": "True", "Ready": "True"}),
    Situation.ENDING: SituationRow("Running", {"Accepted": "True", "Reconciling": "True"}),
    Situation.STOPPING: SituationRow("Stopping", {"Accepted": "True", "Reconciling": "True"}),
    Situation.STOPPED: SituationRow("Stopped", {"Accepted": "True", "Suspended": "True"}),
    Situation.SUCCEEDED: SituationRow(
        "Succeeded", {"Accepted": "True", "Ready": "True", "Complete": "True", "Finished": "True"}
    ),
    Situation.FAILED: SituationRow(
        "Failed", {"Accepted": "True", "Failed": "True", "Finished": "True", "Stalled": "True"}
    ),
}


SILENT: Final = frozenset({"Finished"})
"""Conditions that only hold together with another one, which has the message."""


def conditions_of(
    values: Mapping[str, Literal["True", "False"]],
    before: Iterable[Condition],
    reason: str,
    message: str,
    *,
    generation: int,
    now: str,
) -> tuple[Condition, ...]:
    """A row's conditions, with the times at which they came to hold. For objects of any kind."""
    held = {condition.type: condition for condition in before}
    return tuple(
        Condition(
            type=type_,
            status=value,
            reason=reason_of(type_, value, reason),
            message="" if type_ in SILENT or is_plain(type_, value) else message,
            last_transition_time=_holds_since(held.get(type_), value, now),
            observed_generation=generation,
        )
        for type_, value in values.items()
    )


def reason_of(type_: str, value: str, reason: str) -> str:
    """A condition's reason in an assessment that has this one."""
    return "Accepted" if is_plain(type_, value) else reason


def is_plain(type_: str, value: str) -> bool:
    """Whether a condition says only that the run was accepted, whatever happened since."""
    return (type_, value) == ("Accepted", "True")


def _holds_since(before: Condition | None, status: str, now: str) -> str:
    """When a condition came to hold: the moment stays while its status does."""
    return before.last_transition_time if before and before.status == status else now
