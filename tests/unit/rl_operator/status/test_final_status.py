"""The status of a run that is over: whether someone edited it, and how it was."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import NOW, RUNNING, make_pod, make_view, ready, terminated
from tests.unit.rl_operator.status.test_phase_and_action import ROWS
from tests.unit.rl_operator.status.test_size import ENDS, largest_end

from rl_operator.api.status_fields import RunStatus
from rl_operator.status.derived_status import derive
from rl_operator.status.final_status import is_as_written, put_back
from rl_operator.status.phase_and_action import assess
from rl_operator.status.size import AT_THE_END, size_of

STATUSES = {name: derive(row[0], assess(row[0])) for name, row in ROWS.items()}
OVER = {name: status for name, status in STATUSES.items() if status.finished}
OVER |= {f"the largest, {name}": largest_end(trainer) for name, trainer in ENDS.items()}
LATER = NOW + timedelta(hours=1)


def without_condition(status: RunStatus, type_: str) -> dict[str, Any]:
    return {"conditions": [c.to_wire() for c in status.conditions if c.type != type_]}


def contradicted(status: RunStatus) -> dict[str, Any]:
    return {"conditions": [c.to_wire() | {"status": "Unknown"} for c in status.conditions]}


def with_reason(status: RunStatus, reason: str) -> dict[str, Any]:
    return {"conditions": [c.to_wire() | {"reason": reason} for c in status.conditions]}


EDITS = {
    "message": lambda _: {"message": "HACKED"},
    "no conditions": lambda _: {"conditions": []},
    "both": lambda _: {"message": "HACKED", "conditions": []},
    "one condition less": lambda status: without_condition(status, "Finished"),
    "other values": contradicted,
    "another reason": lambda status: with_reason(status, "Hacked"),
}


def test_there_are_some() -> None:
    assert {status.phase for status in OVER.values()} == {"Succeeded", "Failed"}


@pytest.mark.parametrize("name", OVER)
def test_what_was_derived_is_as_written(name: str) -> None:
    assert is_as_written(OVER[name].to_wire())


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("name", OVER)
def test_an_edit_is_put_back(name: str, edit: Any) -> None:
    before = OVER[name]
    edited = RunStatus.model_validate(before.to_wire() | edit(before))
    assert not is_as_written(edited.to_wire())
    after = put_back(edited, 3, LATER)
    assert is_as_written(after.to_wire())
    assert before.message is not None
    assert [(c.type, c.status, c.reason) for c in after.conditions] == [
        (c.type, c.status, c.reason) for c in before.conditions
    ]
    assert after.message.startswith((before.failure.reason if before.failure else before.message)[:40])
    assert size_of(after) <= AT_THE_END
    assert put_back(after, 3, LATER) == after
    assert after.with_changes(message=None, conditions=()) == before.with_changes(message=None, conditions=())


def test_a_phase_that_someone_else_wrote_is_not_confirmed() -> None:
    """The run had not succeeded: there are no weights that would say so."""
    view = make_view({**RUNNING, "phase": "Succeeded"}, pod=make_pod(ready(), terminated(0), ready()))
    assert not is_as_written(view.run.status.to_wire())
    assert put_back(view.run.status, 3, LATER) == view.run.status
