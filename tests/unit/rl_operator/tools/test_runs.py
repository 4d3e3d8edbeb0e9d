from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_operator.tools.agent_tool import ToolRefusedError
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.runs import chosen_run, named_run, state_of

STARTED = {"startTime": "2026-11-22T00:30:00Z"}
EARLIER = {"observedGeneration": 0}


@pytest.mark.parametrize(
    ("suspend", "status", "state"),
    [
        pytest.param(True, {}, "draft", id="nobody has looked at it"),
        pytest.param(True, {"phase": "Draft"}, "draft", id="draft"),
        pytest.param(False, {}, "pending", id="new"),
        pytest.param(False, {"phase": "Draft", **EARLIER}, "pending", id="a draft that was just started"),
        pytest.param(False, {"phase": "Running", **STARTED}, "running", id="running"),
        pytest.param(True, {"phase": "Running", **STARTED, **EARLIER}, "stopping", id="just asked to stop"),
        pytest.param(True, {"phase": "Pending", **STARTED, **EARLIER}, "stopping", id="asked to stop in a pause"),
        pytest.param(True, {"phase": "Stopped", **STARTED}, "stopped", id="stopped"),
        pytest.param(True, {"phase": "Stopped", **STARTED, **EARLIER}, "stopped", id="stopped, edited since"),
        pytest.param(False, {"phase": "Stopped", **STARTED, **EARLIER}, "pending", id="just asked to go on"),
        pytest.param(False, {"phase": "Stopped", **STARTED}, "stopped", id="from a backup"),
        pytest.param(True, {"phase": "Succeeded", **STARTED, **EARLIER}, "completed", id="over, whatever is asked"),
        pytest.param(False, {"phase": "Failed", **STARTED}, "failed", id="failed"),
    ],
)
def test_states(suspend: bool, status: dict[str, Any], state: str) -> None:
    assert state_of(parsed(run_manifest(spec={"suspend": suspend}, **status))) == state


def context_with(*names: str) -> CallContext:
    return CallContext(MemoryTarget(*(run_manifest(name, phase="Running") for name in names)), "default")


@pytest.mark.parametrize("run_id", ["sort-0a1b2c3d", "0a1b2c3d"])
def test_a_run_is_found_by_its_name_and_its_suffix(run_id: str) -> None:
    assert named_run(context_with("sort-0a1b2c3d", "sort-00000000"), run_id).metadata.name == "sort-0a1b2c3d"


def test_an_ambiguous_suffix_is_refused() -> None:
    with pytest.raises(ToolRefusedError) as refused:
        named_run(context_with("sort-0a1b2c3d", "add-0a1b2c3d"), "0a1b2c3d")
    assert sorted(refused.value.details["available"]) == ["add-0a1b2c3d", "sort-0a1b2c3d"]


@pytest.mark.parametrize("run_id", ["1b2c3d", "0A1B2C3D", "sort", ""])
def test_other_suffixes_find_nothing(run_id: str) -> None:
    with pytest.raises(ToolRefusedError) as refused:
        named_run(context_with("sort-0a1b2c3d"), run_id)
    assert refused.value.details == {"active_runs": ["sort-0a1b2c3d"]}


def test_without_a_name_the_callers_latest_draft_is_used() -> None:
    with pytest.raises(ToolRefusedError, match="you have drafted no run yet"):
        chosen_run(context_with("sort-0a1b2c3d"), None)
