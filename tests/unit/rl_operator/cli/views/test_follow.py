from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_operator.cli.commands.follow_run import is_reached, is_too_far, parse_until
from rl_operator.cli.exits import exit_code_of
from rl_operator.cli.views.follow import at_rest, exit_code, follow
from rl_operator.operator_errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    OperatorError,
    RefusedError,
    TargetUnreachableError,
    WaitTimeoutError,
)

REFUSED = [
    {"type": "Accepted", "status": "False", "reason": "LockedField", "lastTransitionTime": "2026-01-01T00:00:00Z"}
]


@pytest.mark.parametrize(
    ("status", "rests", "code"),
    [
        pytest.param({"phase": "Succeeded"}, True, 0, id="succeeded"),
        pytest.param({"phase": "Failed"}, True, 1, id="failed"),
        pytest.param({"phase": "Stopped"}, True, 0, id="stopped"),
        pytest.param({"phase": "Pending", "conditions": REFUSED}, True, 2, id="refused"),
        pytest.param({"phase": "Pending", "conditions": REFUSED, "observedGeneration": 0}, False, 2, id="fixed"),
        pytest.param({"phase": "Stopped", "observedGeneration": 0}, False, 0, id="resumed"),
        pytest.param({"phase": "Running"}, False, 0, id="running"),
        pytest.param({"phase": "Pending"}, False, 0, id="backing off"),
    ],
)
def test_when_a_run_is_at_rest_and_what_it_means(status: dict[str, Any], rests: bool, code: int) -> None:
    run = parsed(run_manifest(**status))
    assert (at_rest(run), exit_code(run)) == (rests, code)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RefusedError(""), 2),
        (InvalidError(""), 2),
        (ConflictError(""), 2),
        (TargetUnreachableError(""), 3),
        (ForbiddenError(""), 3),
        (WaitTimeoutError(""), 124),
    ],
)
def test_exit_codes_of_errors(error: OperatorError, code: int) -> None:
    assert exit_code_of(error) == code


def test_following_shows_each_version_once_and_ends_at_the_goal() -> None:
    target, seen = MemoryTarget(run_manifest(phase="Pending")), list[str | None]()
    phases = iter(["Starting", "Running", "Succeeded"])

    def show(run: Any) -> None:
        seen.append(run.status.phase)
        if run.status.phase != "Succeeded":
            target.create(run_manifest(phase=next(phases)))
            target.objects["default", "sorting"]["metadata"]["resourceVersion"] = str(len(seen) + 1)

    assert follow(target, "default", "sorting", at_rest, show).status.phase == "Succeeded"
    assert seen == ["Pending", "Starting", "Running", "Succeeded"]


def test_following_ends_when_the_run_is_deleted() -> None:
    with pytest.raises(RefusedError, match="was deleted"):
        follow(MemoryTarget(), "default", "sorting", at_rest, lambda _: None)


def test_following_has_a_deadline() -> None:
    target = MemoryTarget(run_manifest(phase="Running", message="Training."))
    with pytest.raises(WaitTimeoutError, match=r"now: Training\."):
        follow(target, "default", "sorting", at_rest, lambda _: None, timeout=0)


def test_goals() -> None:
    at_step_3 = parsed(run_manifest(phase="Running", progress={"step": 3, "totalSteps": 9, "percent": 33}))
    assert is_reached(at_step_3, parse_until("step=3"))
    assert not is_reached(at_step_3, parse_until("step=4"))
    assert not is_reached(at_step_3, parse_until("finished"))
    forty = parsed(run_manifest(phase="Running", progress={"step": 3, "totalSteps": 40, "percent": 7}))
    assert [is_too_far(forty, parse_until(until)) for until in ("step=40", "step=41", "finished")] == [
        False,
        True,
        False,
    ]
    for wrong in ("step", "step=x", "step=-1", "Finished", ""):
        with pytest.raises(RefusedError, match="it must be finished or step=N"):
            parse_until(wrong)
