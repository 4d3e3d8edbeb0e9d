"""The trainer's side, against programs that do one thing each."""

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from tinker_atropos.trainer.reporting.trackers.tracker_process import MAX_WAITING_BYTES, TrackerProcess, Way

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

DEADLINE_SECONDS = 120.0
RESULT = {"outcome": "succeeded"}
TELL = "import json, sys, time\nsay = lambda **told: print(json.dumps(told), flush=True)\n"
PROGRAMS = {
    "refuses": "sys.stdin.readline()\nsay(failure='no such project')",
    "records": (
        "say(state='running', url='here', if_unsent='interrupted')\n"
        "with open(json.loads(sys.argv[1])['file'], 'w') as file:\n"
        "    for line in sys.stdin:\n"
        "        file.write(line)\n"
        "        file.flush()\n"
        "say(state='finished')"
    ),
    "dies": "say(state='running', url='here', if_unsent='interrupted')\nsys.stdin.readline()\nsys.exit(1)",
    "never_reads": "say(state='running', url='here', if_unsent='interrupted')\ntime.sleep(600)",
}


@pytest.fixture
def tracker_of(tmp_path: Path):
    """A tracker that tries these programs, one after the other."""
    for name, text in PROGRAMS.items():
        (tmp_path / f"{name}.py").write_text(TELL + text)

    def make(*names: str, close_seconds: float = DEADLINE_SECONDS) -> TrackerProcess:
        env_vars = {**os.environ, "PYTHONPATH": str(tmp_path)}
        arguments = {"file": str(tmp_path / "received")}
        return TrackerProcess(
            "Curves", {}, [Way(name, arguments, env_vars, "it ended") for name in names], close_seconds
        )

    return make


async def until(tracker: TrackerProcess, state: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while tracker.to_wire()["state"] != state:
        assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS} s for {state}: {tracker.to_wire()}"
        await asyncio.sleep(0.02)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == "WARNING"]


async def test_the_next_way_gets_all_points(tracker_of, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    tracker = tracker_of("refuses", "records")
    tracker.start()
    tracker.log_step(1, {"loss": 1.0})
    await until(tracker, "running")
    tracker.log_step(2, {"loss": 2.0})
    await tracker.close(RESULT)
    received = [json.loads(line) for line in (tmp_path / "received").read_text().splitlines()]
    assert [message.get("step") for message in received] == [1, 2, None]
    assert received[-1] == {"summary": {"result/outcome": "succeeded"}, "exit_code": 0}
    assert tracker.to_wire()["state"] == "finished"
    assert warnings(caplog) == []


async def test_when_no_way_is_left_the_reason_is_told(tracker_of, caplog: pytest.LogCaptureFixture) -> None:
    tracker = tracker_of("refuses")
    tracker.start()
    tracker.log_step(1, {"loss": 1.0})
    await until(tracker, "failed")
    await tracker.close(RESULT)
    assert warnings(caplog) == ["Curves is off for this run: no such project"]


async def test_a_process_that_dies_is_told_once(tracker_of, caplog: pytest.LogCaptureFixture) -> None:
    tracker = tracker_of("dies")
    tracker.start()
    await until(tracker, "running")
    tracker.log_step(1, {"loss": 1.0})
    await until(tracker, "interrupted")
    for step in range(2, 100):
        tracker.log_step(step, {"loss": 1.0})
    await tracker.close(RESULT)
    assert warnings(caplog) == ["Curves is interrupted (its process ended)"]


async def test_a_process_that_never_reads_is_given_up_at_a_limit(tracker_of, caplog: pytest.LogCaptureFixture) -> None:
    tracker = tracker_of("never_reads")
    tracker.start()
    await until(tracker, "running")
    text = "x" * 2**20
    for step in range(MAX_WAITING_BYTES // 2**20 + 2):
        tracker.log_step(step, {"loss": 1.0}, [(step, text, text, 1.0, 1.0, 0)])
    assert tracker.to_wire()["state"] == "failed"
    await tracker.close(RESULT)
    assert warnings(caplog) == [f"Curves is off for this run: it has not taken {MAX_WAITING_BYTES} bytes of points"]


async def test_a_process_that_does_not_end_does_not_delay_the_run(tracker_of, caplog: pytest.LogCaptureFixture) -> None:
    tracker = tracker_of("never_reads", close_seconds=0.1)
    tracker.start()
    await until(tracker, "running")
    started = time.monotonic()
    await tracker.close(RESULT)
    assert time.monotonic() - started < 60
    assert warnings(caplog) == ["Curves is interrupted (it did not finish within 0.1 s)"]
