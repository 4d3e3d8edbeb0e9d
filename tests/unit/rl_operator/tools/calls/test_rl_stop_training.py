from dataclasses import replace
from typing import Any

import pytest
from tests.unit.rl_operator.tools.contexts import Call, drafted, spec_of, write_status

from rl_operator.tools.call_context import CallContext

STARTED = "2026-11-22T00:30:00Z"
AT_STEP_3 = {"checkpoint": {"step": 3, "statePath": "tinker://w"}}


@pytest.fixture
def context(context: CallContext) -> CallContext:
    """Nothing reconciles here: waiting is in vain."""
    return replace(context, longest_wait=0.02)


def started(context: CallContext, **status: Any) -> str:
    name = drafted(context)
    context.target.change_spec("default", name, {"suspend": False})
    write_status(context, name, **{"phase": "Running", "observedGeneration": 2, "startTime": STARTED, **status})
    return name


def test_a_run_is_asked_to_stop(context: CallContext, call: Call) -> None:
    name = started(context)
    answer = call("rl_stop_training", run_id=name).answer
    assert spec_of(context, name)["suspend"] is True
    assert answer["status"] == "stopping"
    assert "rl_check_status" in answer["message"]
    assert answer["resume"] == f"rl_start_training(run_id='{name}')"


def test_asking_again_changes_nothing(context: CallContext, call: Call) -> None:
    name = started(context)
    call("rl_stop_training", run_id=name)
    before = context.target.run("default", name)
    assert call("rl_stop_training", run_id=name[-8:]).answer["status"] == "stopping"
    assert context.target.run("default", name) == before


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"phase": "Stopped", **AT_STEP_3}, "stopped"),
        ({"phase": "Succeeded"}, "completed"),
        ({"phase": "Failed"}, "failed"),
    ],
)
def test_an_inactive_one_is_a_message_but_no_error(
    context: CallContext, call: Call, status: dict[str, Any], state: str
) -> None:
    name = started(context, **status)
    before = context.target.run("default", name)
    outcome = call("rl_stop_training", run_id=name)
    assert outcome.code is None
    assert outcome.answer["status"] == state
    assert "nothing to stop" in outcome.answer["message"]
    assert context.target.run("default", name) == before


def test_a_draft_has_nothing_to_stop(context: CallContext, call: Call) -> None:
    outcome = call("rl_stop_training", run_id=drafted(context))
    assert (outcome.code, outcome.answer["status"]) == (None, "draft")


def test_a_queued_one_becomes_a_draft_again(context: CallContext, call: Call) -> None:
    name = drafted(context)
    context.target.change_spec("default", name, {"suspend": False})
    answer = call("rl_stop_training", run_id=name).answer
    assert (answer["status"], answer["message"]) == ("draft", f"{name} will not start: it is a draft again")


def test_the_checkpoint_and_how_to_resume(context: CallContext, call: Call) -> None:
    name = started(context)
    context.target.change_spec("default", name, {"suspend": True})
    write_status(context, name, phase="Stopping", observedGeneration=3, startTime=STARTED, **AT_STEP_3)
    answer = call("rl_stop_training", run_id=name).answer
    assert answer["checkpoint"] == {"step": 3, "state_path": "tinker://w"}


def test_a_run_kept_in_git_gets_a_warning(context: CallContext, call: Call) -> None:
    name = started(context)
    context.target.change_spec("default", name, {}, {"argocd.argoproj.io/instance": "runs"})
    assert "Argo CD" in call("rl_stop_training", run_id=name).answer["warning"]
