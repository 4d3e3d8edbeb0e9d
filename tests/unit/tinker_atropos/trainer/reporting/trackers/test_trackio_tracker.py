"""Trackio: what keeps it from recording, and the real package in a Python of its own (see `.ci/run`)."""

import json
import os
import re
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import tinker_atropos
from tinker_atropos.config.run_config import parse_config
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.reporting.trackers.tracker_process import TrackerProcess
from tinker_atropos.trainer.reporting.trackers.trackio_tracker import trackio_settings, trackio_tracker, unusable

CLOSE_SECONDS = 240.0
SETTINGS = Settings(run_name="sorting", run_namespace="team-a", run_uid="u1234567-8")
CONFIG = parse_config(
    {
        "env": {
            "total_steps": 40, "group_size": 2, "batch_size": 4, "tokenizer_name": "bundled", "max_token_length": 64,
        },
        "tinker": {"lora_rank": 8, "wandb_group": "a-group"},
    }
)  # fmt: skip
RESULT = {"outcome": "succeeded", "stepsTrained": 3, "samplerPath": "tinker://r/sampler_weights/final", "reason": None}
SAMPLES = [(1, "sort 21", "12", 1.0, 0.5, 0), (1, "sort 43", "43", 0.0, -0.5, 0)]
HOW_TO = (
    "needs RL_TRACKIO_PYTHON: a Python with trackio 0.43.0 (python3 -m venv V && V/bin/pip install trackio==0.43.0)"
)


class Folder:
    """A folder of Trackio's, and attempts that record into it."""

    def __init__(self, python: str, path: Path) -> None:
        self.path = path
        self._python = python
        source = str(Path(tinker_atropos.__file__).parents[1])
        self._environ = {**os.environ, "TRACKIO_DIR": str(path), "PYTHONPATH": source, "HOME": str(path.parent)}

    def tracker(self, settings: Settings = SETTINGS, project: str | None = None) -> TrackerProcess:
        wanted = trackio_settings(settings, CONFIG)
        wanted = replace(wanted, project=project or wanted.project)
        return trackio_tracker(wanted, self._environ, CLOSE_SECONDS, python=self._python)

    async def recorded(self, steps: range, settings: Settings = SETTINGS) -> TrackerProcess:
        """A whole attempt."""
        tracker = self.tracker(settings)
        tracker.start()
        for step in steps:
            tracker.log_step(step, {"train/loss": step / 4})
        await tracker.close(RESULT)
        return tracker

    def points(self, run: str) -> list[tuple[int, dict]]:
        """(step, metrics) of each row, in the order of logging, from Trackio's own file."""
        with sqlite3.connect(self.path / "rl-operator.db") as rows:
            found = rows.execute("SELECT step, metrics FROM metrics WHERE run_name = ? ORDER BY id", (run,)).fetchall()
        return [(step, json.loads(metrics)) for step, metrics in found]

    def shown(self, command: str) -> str:
        """What Trackio's own command line answers."""
        program = Path(self._python).with_name("trackio")
        done = subprocess.run(
            [program, *command.split()], env=self._environ, capture_output=True, timeout=120, check=True
        )
        return done.stdout.decode()


@pytest.fixture
def folder(process, tmp_path: Path) -> Folder:
    python = os.environ.get("RL_TRACKIO_PYTHON")
    if not python:
        pytest.skip(HOW_TO)
    return Folder(python, tmp_path / "trackio")


async def test_what_is_recorded_of_a_run(folder: Folder) -> None:
    tracker = folder.tracker()
    tracker.start()
    tracker.log_report(0, {"eval/percent_correct": 0.5})
    tracker.log_step(1, {"train/loss": 0.25, "reward/mean": float("nan")}, SAMPLES)
    tracker.log_step(2, {"train/loss": 0.5})
    tracker.log_report(1, {"sort_digits_0_train/percent_correct": 0.75})
    await tracker.close(RESULT)
    assert tracker.to_wire() == {
        "state": "finished",
        "project": "rl-operator",
        "run": "sorting",
        "show": f"TRACKIO_DIR={folder.path} trackio show --project rl-operator",
    }
    assert tracker.trouble is None
    *points, (end, conclusion) = folder.points("sorting")
    columns = ("step", "prompt", "completion", "score", "advantage", "policy_step")
    table = {"_type": "trackio.table", "_value": [dict(zip(columns, row, strict=True)) for row in SAMPLES]}
    assert points == [
        (0, {"eval/percent_correct": 0.5}),
        (1, {"train/loss": 0.25, "reward/mean": "NaN", "samples": table}),
        (2, {"train/loss": 0.5}),
        (2, {"env/step": 1.0, "sort_digits_0_train/percent_correct": 0.75}),
    ]
    assert end == 2
    assert conclusion["result/summary"]["_value"] == [
        {"name": "outcome", "value": "succeeded"},
        {"name": "stepsTrained", "value": "3"},
        {"name": "samplerPath", "value": "tinker://r/sampler_weights/final"},
    ]
    told = json.loads(folder.shown("get run --project rl-operator --run sorting --json"))
    assert told["config"]["tinker"]["lora_rank"] == 8
    assert told["config"]["run"] == {"name": "sorting", "namespace": "team-a", "uid": "u1234567-8"}
    assert told["config"]["_Group"] == "a-group"


async def test_two_attempts_are_one_run_with_increasing_steps(folder: Folder) -> None:
    await folder.recorded(range(1, 5))
    await folder.recorded(range(3, 7))
    losses = [(step, metrics["train/loss"]) for step, metrics in folder.points("sorting") if "train/loss" in metrics]
    assert losses == [(step, step / 4) for step in range(1, 7)]


async def test_another_run_of_that_name_stays_apart(folder: Folder) -> None:
    await folder.recorded(range(1, 3))
    other = replace(SETTINGS, run_uid="v7654321-8")
    for steps in (range(1, 2), range(2, 4)):
        assert (await folder.recorded(steps, other)).to_wire()["run"] == "sorting-v7654321"
    assert [step for step, _ in folder.points("sorting")] == [1, 2, 2]
    assert [step for step, _ in folder.points("sorting-v7654321")] == [1, 1, 2, 3, 3]


@pytest.mark.parametrize(
    ("project", "is_file", "why"),
    [
        ("registry-runs", False, "Project name 'registry-runs' is not allowed"),
        ("runs", True, "File exists|Not a directory"),
    ],
)
async def test_what_trackio_refuses_is_told(folder: Folder, project: str, is_file: bool, why: str) -> None:
    if is_file:
        folder.path.write_text("a file where the folder should be")
    tracker = folder.tracker(project=project)
    tracker.start()
    tracker.log_step(1, {"train/loss": 0.25})
    await tracker.close(RESULT)
    assert tracker.trouble
    assert re.search(why, tracker.trouble)


def test_what_keeps_it_from_recording() -> None:
    assert unusable({}, installed=True) is None
    assert unusable({"TRACKIO_DIR": "/data/trackio"}, installed=True) is None
    missing = unusable({}, installed=False)
    assert missing is not None
    assert missing.startswith("the package trackio is not installed in ")
    assert missing.endswith("-m pip install 'trackio>=0.43,<1'")
    relative = unusable({"TRACKIO_DIR": "curves"}, installed=True)
    assert relative == (
        "TRACKIO_DIR is 'curves'; it must be an absolute path, since the trainer works in a folder of its own"
    )


async def test_a_tracker_that_cannot_record_says_so_and_does_nothing() -> None:
    tracker = trackio_tracker(trackio_settings(SETTINGS, CONFIG), {}, CLOSE_SECONDS, why_not="there is no package")
    tracker.start()
    tracker.log_step(1, {"train/loss": 0.25})
    await tracker.close(RESULT)
    assert tracker.to_wire() == {"state": "failed", "project": "rl-operator", "run": "sorting", "show": None}
    assert tracker.trouble == "Trackio is off for this run: there is no package"


def test_keys_of_others_and_the_network_are_kept_from_it() -> None:
    environ = {"TINKER_API_KEY": "k", "WANDB_API_KEY": "w", "PATH": "/bin"}
    wanted = trackio_settings(SETTINGS, CONFIG)
    assert trackio_tracker(wanted, environ, 1)._ways[0].env_vars == {"PATH": "/bin", "HF_HUB_OFFLINE": "1"}
    remote = environ | {"TRACKIO_SPACE_ID": "me/curves"}
    assert trackio_tracker(wanted, remote, 1)._ways[0].env_vars == {"PATH": "/bin", "TRACKIO_SPACE_ID": "me/curves"}
