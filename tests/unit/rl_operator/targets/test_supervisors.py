"""When a local run needs a supervisor."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.local.conftest import end_everything
from tests.integration.local.scripted import WORKS_ON, start_scripted

from rl_operator.local.state.layout import Layout
from rl_operator.local.state.locks import holder
from rl_operator.local.state.state_store import StateStore
from rl_operator.operator_errors import GoneError
from rl_operator.targets.supervisors import Supervisors, is_at_rest, owner


def condition(type_: str, value: str = "True") -> dict[str, Any]:
    return {"observedGeneration": 2, "conditions": [{"type": type_, "status": value}]}


@pytest.mark.parametrize(
    ("status", "rests"),
    [
        pytest.param({}, False, id="new"),
        pytest.param({"phase": "Succeeded", "observedGeneration": 1}, True, id="finished, edited since"),
        pytest.param({"phase": "Failed"}, True, id="failed"),
        pytest.param({"phase": "Running", "observedGeneration": 2}, False, id="running"),
        pytest.param(condition("Suspended"), True, id="stopped"),
        pytest.param(condition("Stalled"), True, id="refused"),
        pytest.param(condition("Stalled", "False"), False, id="not refused any more"),
        pytest.param(condition("Stalled") | {"observedGeneration": 1}, False, id="refused, edited since"),
    ],
)
def test_a_run_is_at_rest_if_only_an_outside_write_can_move_it(status: dict[str, Any], rests: bool) -> None:
    assert is_at_rest({"metadata": {"generation": 2}, "status": status}) == rests


def test_a_pod_without_a_run_is_named() -> None:
    with pytest.raises(GoneError, match="pod stray belongs to no run"):
        owner({"metadata": {"name": "stray"}})


PATIENCE_SECONDS = 60.0


def test_whoever_looks_again_and_again_starts_one_supervisor_and_another_when_it_is_killed(
    process: None, tmp_path: Path
) -> None:
    """Agents, pages and followers look several times a second, and it needs one to start."""
    store, lock = StateStore(Layout(tmp_path)), Layout(tmp_path).supervisor_lock("default", "run")
    start_scripted(store, "run", trainer=WORKS_ON)
    supervisors = Supervisors(store)
    started, killed = set[int](), set[int | None]({None})
    try:
        for _ in range(2):
            began = time.monotonic()
            while (pid := holder(lock)) in killed:  # its successor holds the lock before it signs it
                assert time.monotonic() - began < PATIENCE_SECONDS
                supervisors.look_after("default", "run")
                started |= set(supervising(tmp_path))
                time.sleep(0.05)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
            while holder(lock):
                time.sleep(0.01)
        assert len(started) == 2
    finally:
        end_everything(tmp_path)


def supervising(root: Path) -> list[int]:
    """Our own children that supervise a run of that state folder."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if str(root) in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")]
