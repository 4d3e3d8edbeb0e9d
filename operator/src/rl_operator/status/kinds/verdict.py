"""The conditions of RLRuntime and RLEnvironment: four cases, one table (kstatus: Ready, Reconciling, Stalled)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final, Literal

from rl_operator.api.status_fields import Condition
from rl_operator.status.observed.observation import format_time
from rl_operator.status.text.table import holds_since


class Readiness(Enum):
    """The situation of the object."""

    READY = "runs can use it"
    RECONCILING = "it is being read, or will be again, without further action"
    FAILING = "it could not be read, and is tried again"
    STALLED = "someone must fix it"


CONDITIONS: Final[Mapping[Readiness, Mapping[str, Literal["True", "False"]]]] = {
    Readiness.READY: {"Ready": "True"},
    Readiness.RECONCILING: {"Reconciling": "True"},
    Readiness.FAILING: {"Ready": "False", "Reconciling": "True"},
    Readiness.STALLED: {"Ready": "False", "Stalled": "True"},
}


@dataclass(frozen=True, slots=True)
class Verdict:
    readiness: Readiness
    reason: str
    message: str


def conditions_of(
    verdict: Verdict, previous: Sequence[Condition], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """The table's row, with the times at which its conditions came to hold."""
    before = {condition.type: condition for condition in previous}
    return tuple(
        Condition(
            type=type_,
            status=status,
            reason=verdict.reason,
            message=verdict.message,
            last_transition_time=holds_since(before.get(type_), status, format_time(now)),
            observed_generation=generation,
        )
        for type_, status in CONDITIONS[verdict.readiness].items()
    )


def reasons_of(conditions: Sequence[Condition]) -> frozenset[tuple[str, str]]:
    """The content of the Event when it changes."""
    return frozenset((condition.type, condition.reason) for condition in conditions)
