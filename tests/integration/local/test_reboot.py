"""After a reboot the PIDs in the state folder belong to other processes, and the clock may be wrong."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.integration.local.scene import STEPS, Scene

from rl_operator.status.observed.observation import format_time


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a PID that one of ours had before."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def powered_off(scene: Scene) -> Scene:
    """A run of which nothing was left, that may finish."""
    scene.allow("go", "save", "leave")
    scene.start()
    scene.until_held()
    scene.kill("supervisor", "reaper", "api", "trainer", "environment")
    scene.allow("finish")
    return scene


def test_a_run_continues_and_other_processes_are_left_alone(
    powered_off: Scene, bystander: subprocess.Popen[bytes]
) -> None:
    scene = powered_off
    for lock in scene.rlctl.root.rglob("*.lock"):
        lock.write_text(f"{bystander.pid}\n")
    draft = next(scene.rlctl.layout.objects.rglob("run.json")).with_suffix(".tmp")
    draft.write_text('{"kind": "RLTrain')
    scene.look()
    status = scene.until_phase("Succeeded")
    assert [attempt["reason"] for attempt in status["attempts"]] == ["SupervisorLost", "Succeeded"]
    assert len(scene.noted("steps")) == STEPS
    assert bystander.poll() is None
    scene.check()


def test_a_clock_set_back_delays_nothing(powered_off: Scene) -> None:
    """Times written before the reboot are two hours ahead of the time after it."""
    scene = powered_off
    for path in scene.rlctl.layout.objects.rglob("*.json"):
        path.write_text(json.dumps(ahead(json.loads(path.read_text()))))
    began = time.monotonic()
    scene.look()
    status = scene.until_phase("Succeeded")
    assert time.monotonic() - began < 60
    assert [attempt["reason"] for attempt in status["attempts"]] == ["SupervisorLost", "Succeeded"]
    scene.check()


def test_a_pause_that_seems_to_last_two_hours_is_over(scene: Scene) -> None:
    scene.allow("go", "save", "leave", "finish")
    scene.put()
    ended = {"attempt": 1, "pod": "run-1", "reason": "SupervisorLost", "steps": 0, "ended": moment(timedelta(hours=2))}
    scene.rlctl.store.update("RLTrainingRun", "default", "run", lambda run: run["status"].update(attempts=[ended]))
    scene.look()
    status = scene.until_phase("Succeeded")
    assert [attempt["attempt"] for attempt in status["attempts"]] == [1, 2]
    scene.check()


def ahead(value: Any) -> Any:
    """The same with every time of the last hour moved ahead by two hours."""
    if isinstance(value, dict):
        return {key: ahead(each) for key, each in value.items()}
    if isinstance(value, list):
        return [ahead(each) for each in value]
    if isinstance(value, str) and value.startswith(moment(timedelta())[:10]) and value.endswith("Z"):
        return format_time(datetime.fromisoformat(value) + timedelta(hours=2))
    return value


def moment(from_now: timedelta) -> str:
    return format_time(datetime.now(UTC) + from_now)
