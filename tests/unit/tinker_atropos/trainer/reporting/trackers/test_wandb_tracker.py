"""The process of a tracker, and the real wandb SDK against a W&B server in memory: nothing delays the run."""

import asyncio
import json
import logging
import math
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tinker_atropos.run_configs import run_config
from tests.wandb_server import WandbRun, WandbServer, running_wandb_server

from tinker_atropos.settings import Parent, Settings
from tinker_atropos.trainer.reporting.trackers.wandb_tracker import (
    MAX_WAITING_BYTES,
    TrackerProcess,
    Way,
    enabled,
    wandb_settings,
    wandb_tracker,
)

nightly = pytest.mark.nightly("tinker-atropos/src/tinker_atropos/trainer/reporting")

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
    assert received[-1] == {"summary": {f"result/{name}": value for name, value in RESULT.items()}, "exit_code": 0}
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


RUN_ID = "0c1f2e3d-0000-4000-8000-000000000001"
pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(600),
]  # several processes, each with a start of seconds on a busy machine

DEADLINE_SECONDS = 240.0
CLOSE_SECONDS = 240.0
"""Whatever the machine does beside; where a server is away, the sink is told to wait for it for AWAY_SECONDS only."""

AWAY_SECONDS = 4.0
AWAY_SHARE = AWAY_SECONDS / CLOSE_SECONDS

HELD_UP_SECONDS = 20.0
"""Closing within 1 s takes no longer on any machine; the SDK by itself tries for 30 s to open a run, and for longer to
finish one.
"""
RESULT = {"outcome": "succeeded", "stepsTrained": 3, "samplerPath": "tinker://r/sampler_weights/final"}
SAMPLES = [(1, "sort 21", "12", 1.0, 0.5, 0), (1, "sort 43", "43", 0.0, -0.5, 0)]

CONFIG = run_config(lora_rank=8, wandb_project="a-project", wandb_group="a-group", wandb_run_name="a-name")
SETTINGS = Settings(
    run_name="sorting",
    run_namespace="team-a",
    run_uid="u-1",
    wandb_run_id=RUN_ID,
    start_from="tinker://p/weights/s",
    parent=Parent("sorting-0", 40, "https://w/b/runs/0"),
)


@dataclass
class Attempts:
    """Starts sinks of one run, one after the other, on the same disk."""

    server: WandbServer
    folder: Path

    @property
    def run(self) -> WandbRun:
        return self.server.runs[RUN_ID]

    async def start(self, close_seconds: float = CLOSE_SECONDS, **shares: float) -> TrackerProcess:
        sink = wandb_tracker(wandb_settings(SETTINGS, CONFIG, os.environ), os.environ, close_seconds, **shares)
        sink.start()
        return sink

    async def logged(self, steps: range, **shares: float) -> dict[str, Any]:
        """A whole attempt; returns W&B's part of `/status` at its end."""
        sink = await self.start(**shares)
        for step in steps:
            sink.log_step(step, {"train/loss": step / 4})
        await sink.close(RESULT)
        return sink.to_wire()

    async def sync(self, state: str) -> None:
        """Run the command that the state names."""
        command = state.partition(": ")[2]
        assert command.startswith("wandb sync "), state
        process = await asyncio.create_subprocess_shell(
            f"{sys.executable} -m {command}", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()


@pytest.fixture
async def attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Attempts]:
    async with running_wandb_server() as server:
        monkeypatch.delenv("WANDB_MODE", raising=False)
        for name, value in {
            "WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": server.url, "WANDB_DIR": str(tmp_path),
            "HOME": str(tmp_path), "WANDB_TAGS": "smoke,digits", "WANDB_NOTES": "a note",
            "WANDB__FILE_STREAM_TRANSMIT_INTERVAL": "0.5",  # 15 s otherwise
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        yield Attempts(server, tmp_path)


async def until_holds(holds: Any, awaited: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS} s for {awaited}"
        await asyncio.sleep(0.05)


async def test_what_the_server_receives_of_a_run(attempts: Attempts) -> None:
    sink = await attempts.start()
    sink.log_report(0, {"eval/percent_correct": 0.5})
    sink.log_step(1, {"train/loss": 0.25, "reward/mean": float("nan")}, SAMPLES)
    sink.log_step(2, {"train/loss": 0.5, "reward/mean": 1.0})
    sink.log_report(1, {"sort_digits_0_train/percent_correct": 0.75})
    await sink.close(RESULT)
    run, server = attempts.run, attempts.server

    assert sink.to_wire() == {
        "state": "finished", "url": f"{server.url}/me/a-project/runs/{RUN_ID}", "runId": RUN_ID,
    }  # fmt: skip
    assert (run.project, run.fields["groupName"], run.fields["displayName"]) == ("a-project", "a-group", "a-name")
    assert run.fields["tags"] == ["smoke", "digits"]
    assert run.fields["notes"] == "a note\nStarted from the weights tinker://p/weights/s"
    assert run.config["tinker"]["lora_rank"] == 8
    assert run.config["run"] == {"name": "sorting", "namespace": "team-a", "uid": "u-1"}
    assert run.config["start_from"] == {
        "run": "sorting-0", "step": 40, "state_path": "tinker://p/weights/s", "wandb_url": "https://w/b/runs/0",
    }  # fmt: skip

    assert run.axes == {"*": "train/step"}
    assert [row["train/step"] for row in run.rows] == [0, 1, 2, 2]
    assert run.points("train/loss") == [(1, 0.25), (2, 0.5)]
    assert run.points("eval/percent_correct") == [(0, 0.5)]
    assert run.points("sort_digits_0_train/percent_correct") == [(2, 0.75)]
    assert run.points("env/step") == [(2, 1.0)]
    assert [math.isnan(value) for _, value in run.points("reward/mean")] == [True, False]

    ((step, table),) = run.points("samples")
    assert (step, table["_type"], table["nrows"]) == (1, "table-file", 2)
    content = json.loads(server.files[table["path"]])
    assert content["columns"] == ["step", "prompt", "completion", "score", "advantage", "policy_step"]
    assert content["data"] == [list(row) for row in SAMPLES]
    assert server.artifacts[0]["artifactTypeName"] == "run_table"

    assert run.summary["result/samplerPath"] == "tinker://r/sampler_weights/final"
    assert (run.summary["result/outcome"], run.summary["result/stepsTrained"]) == ("succeeded", 3)
    assert run.exit_codes == [0]


async def test_two_attempts_are_one_run_with_increasing_steps(attempts: Attempts) -> None:
    """The second one starts from the checkpoint of step 2, and trains 3 and 4 again."""
    await attempts.logged(range(1, 5))
    again = await attempts.start()
    again.log_report(2, {"env/reward_mean": 1.0})
    for step in range(3, 7):
        again.log_step(step, {"train/loss": -step})
    await again.close(RESULT | {"outcome": "failed"})
    assert list(attempts.server.runs) == [RUN_ID]
    assert attempts.run.points("train/loss") == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0), (5, -5), (6, -6)]
    assert attempts.run.points("env/reward_mean") == []
    assert attempts.run.exit_codes == [0, 1]


@pytest.mark.parametrize("status", [401, pytest.param(429, marks=nightly)])
async def test_data_a_failing_server_rejects_is_on_disk_and_can_be_sent(attempts: Attempts, status: int) -> None:
    attempts.server.status = status
    wire = await attempts.logged(range(1, 4), connect_share=AWAY_SHARE)
    assert wire["state"].startswith("offline; to send it: wandb sync ")
    assert not attempts.server.runs
    attempts.server.status = None
    await attempts.sync(wire["state"])
    assert attempts.run.points("train/loss") == [(1, 0.25), (2, 0.5), (3, 0.75)]
    assert attempts.run.fields["groupName"] == "a-group"
    await attempts.sync(wire["state"])
    assert len(attempts.run.rows) == 3


@nightly
async def test_the_next_attempt_sends_what_the_previous_one_could_not(attempts: Attempts) -> None:
    attempts.server.status = 500
    await attempts.logged(range(1, 4), connect_share=AWAY_SHARE)
    still_away = await attempts.logged(range(3, 5), connect_share=AWAY_SHARE)
    assert still_away["state"].count("offline-run-") == 2
    attempts.server.status = None
    assert (await attempts.logged(range(4, 7)))["state"] == "finished"
    assert [step for step, _ in attempts.run.points("train/loss")] == [1, 2, 3, 4, 5, 6]


@nightly
async def test_a_server_that_dies_mid_run_loses_nothing(attempts: Attempts) -> None:
    sink = await attempts.start(finish_share=AWAY_SHARE)
    for step in (1, 2):
        sink.log_step(step, {"train/loss": step})
    await until_holds(lambda: RUN_ID in attempts.server.runs and len(attempts.run.rows) == 2, "two rows at the server")
    attempts.server.status = 503
    for step in (3, 4):
        sink.log_step(step, {"train/loss": step}, SAMPLES)
    await sink.close(RESULT)
    state = sink.to_wire()["state"]
    attempts.server.status = None
    await attempts.sync(state)
    assert attempts.run.points("train/loss") == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert [
        json.loads(attempts.server.files[table["path"]])["data"] for _, table in attempts.run.points("samples")
    ] == [[list(row) for row in SAMPLES]] * 2


async def test_a_server_that_never_answers_delays_neither_a_step_nor_the_end(attempts: Attempts) -> None:
    """The server answers only when this test's own event loop turns: a step that waited for it would never end."""
    attempts.server.silent = True
    sink = await attempts.start(close_seconds=1)
    await until_holds(lambda: attempts.server.requests, "the SDK to ask the server")
    for step in range(1, 1001):
        sink.log_step(step, {"train/loss": step})
    started = time.monotonic()
    await sink.close(RESULT)
    assert time.monotonic() - started < HELD_UP_SECONDS


async def test_a_server_that_dies_mid_run_delays_neither_a_step_nor_the_end(attempts: Attempts) -> None:
    sink = await attempts.start(close_seconds=1)
    sink.log_step(1, {"train/loss": 1})
    await until_holds(lambda: RUN_ID in attempts.server.runs and attempts.run.rows, "a row at the server")
    attempts.server.silent = True
    for step in range(2, 1001):
        sink.log_step(step, {"train/loss": step}, SAMPLES if step == 2 else ())
    started = time.monotonic()
    await sink.close(RESULT)
    assert time.monotonic() - started < HELD_UP_SECONDS
    assert sink.to_wire()["state"].startswith("offline; to send it: wandb sync ")


async def test_data_for_a_server_that_never_answers_is_on_disk_and_can_be_sent(
    attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    attempts.server.silent = True
    caplog.set_level(logging.WARNING)
    sink = await attempts.start(connect_share=AWAY_SHARE)
    await until_holds(lambda: attempts.server.requests, "the SDK to ask the server")
    for step in range(1, 1001):
        sink.log_step(step, {"train/loss": step})
    await sink.close(RESULT)
    assert sink.to_wire()["state"].startswith("offline; to send it: wandb sync ")
    assert caplog.text.count("W&B is offline; to send it: wandb sync ") == 1
    assert "(its server did not answer)" in caplog.text
    attempts.server.silent = False
    await attempts.sync(sink.to_wire()["state"])
    assert len(attempts.run.rows) == 1000


async def test_offline_on_request_calls_no_server(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    wire = await attempts.logged(range(1, 4))
    assert wire["state"].startswith("offline; to send it: wandb sync ")
    assert attempts.server.requests == 0


async def test_a_wandb_that_cannot_even_write_is_reported_once(
    attempts: Attempts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "nonsense")
    wire = await attempts.logged(range(1, 4))
    assert wire["state"] == "failed"
    assert caplog.text.count("W&B is off for this run") == 1


@pytest.mark.parametrize(
    ("env_vars", "expected"),
    [
        ({}, False),
        ({"WANDB_API_KEY": "k"}, True),
        ({"WANDB_API_KEY": ""}, False),
        ({"WANDB_MODE": "offline"}, True),
        ({"WANDB_API_KEY": "k", "WANDB_MODE": "disabled"}, False),
    ],
)
def test_wandb_is_used_only_on_request(env_vars: dict[str, str], expected: bool) -> None:
    assert enabled(env_vars) is expected


async def test_an_unused_sink_does_nothing() -> None:
    sink = wandb_tracker(None, {}, CLOSE_SECONDS)
    sink.start()
    sink.log_step(1, {"reward/mean": 1.0})
    await sink.close(RESULT)
    assert sink.to_wire() == {"state": "disabled", "url": None, "runId": None}
