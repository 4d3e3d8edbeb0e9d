"""The real wandb SDK, in processes of their own: what it leaves behind, and that it holds nothing up."""

import os
import socket
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tinker_atropos.trainer.wandb_sink import WandbSink, enabled

RUN = """
    import asyncio, logging
    from tinker_atropos.trainer.wandb_sink import WandbSettings, WandbSink

    async def main():
        sink = WandbSink(WandbSettings("run-1", "a-project", "a-group", "a-name", {"tinker": {"lora_rank": 8}}))
        await sink.start()
        for step in range(1, 4):
            sink.log(step, {"train/loss": -0.5, "reward/mean": 0.25 * step})
        await sink.close(SECONDS)
        print("STATE", sink.to_wire()["state"], flush=True)

    logging.basicConfig()
    asyncio.run(main())
"""


def run(folder: Path, seconds: float, **env_vars: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(RUN).replace("SECONDS", str(seconds))],
        env={**os.environ, "WANDB_DIR": str(folder), "HOME": str(folder), **env_vars},
        cwd=folder, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


def leveldb_log(content: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: LevelDB's log format after a header of 7 bytes. Whole records are enough here."""
    position = 7
    while position + 7 <= len(content):
        _checksum, length, kind = struct.unpack_from("<IHB", content, position)
        if kind == 0:
            return
        assert kind == 1, "a record that spans blocks"
        yield content[position + 7 : position + 7 + length]
        position += 7 + length


def test_offline_files_hold_every_point_on_the_axis_train_step(tmp_path: Path) -> None:
    from wandb.proto import wandb_internal_pb2

    ended = run(tmp_path, 60, WANDB_MODE="offline", WANDB_API_KEY="")
    assert ended.returncode == 0, ended.stderr
    assert "STATE finished" in ended.stdout

    (recorded,) = tmp_path.glob("wandb/offline-run-*/run-run-1.wandb")
    points, runs = [], []
    for raw in leveldb_log(recorded.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(raw)
        if record.HasField("history"):
            items = record.history.item
            points.append({"/".join(item.nested_key) or item.key: float(item.value_json) for item in items})
        if record.HasField("run"):
            runs.append(record.run)
    assert [point["train/step"] for point in points] == [1, 2, 3]
    assert [point["reward/mean"] for point in points] == [0.25, 0.5, 0.75]
    assert (runs[0].run_id, runs[0].project, runs[0].run_group, runs[0].display_name) == (
        "run-1", "a-project", "a-group", "a-name",
    )  # fmt: skip


def test_a_server_that_never_answers_holds_up_neither_the_run_nor_its_end(tmp_path: Path) -> None:
    """Wandb itself would wait for 90 s."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        ended = run(tmp_path, 2, WANDB_BASE_URL=url, WANDB_API_KEY="a" * 40)
    assert ended.returncode == 0, ended.stderr
    assert "STATE failed" in ended.stdout
    assert ended.stderr.count("W&B is off for this run: it did not finish within 2 s") == 1
    assert time.monotonic() - started < 45


def test_a_key_that_wandb_refuses_is_said_once(tmp_path: Path) -> None:
    ended = run(tmp_path, 60, WANDB_BASE_URL="http://127.0.0.1:9", WANDB_API_KEY="short")
    assert ended.returncode == 0, ended.stderr
    assert "STATE failed" in ended.stdout
    assert ended.stderr.count("W&B is off for this run") == 1


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
def test_wandb_is_used_only_when_somebody_asked_for_it(env_vars: dict[str, str], expected) -> None:
    assert enabled(env_vars) is expected


async def test_a_sink_that_nobody_asked_for_does_nothing() -> None:
    sink = WandbSink(None)
    await sink.start()
    sink.log(1, {"reward/mean": 1.0})
    await sink.close(1)
    assert sink.to_wire() == {"state": "disabled", "url": None, "runId": None}
