"""Real runs: the bundled model trains for a few steps. They share one Tinker service.

Nightly: what scripts in place of containers show as well (test_kills, test_supervision).
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.local.conftest import Rlctl, run_writer
from tests.integration.training.kept_rollouts import trained_items
from tests.small_disks import mounted

from rl_operator.local.state.locks import FileLock, holder

pytestmark = pytest.mark.timeout(600)  # several train at once, on two processors

nightly = pytest.mark.nightly("operator/src/rl_operator/local", "tinker-atropos/src/tinker_atropos/trainer/backend")

WriteRun = Callable[..., str]
SHORT = {"total_steps": 2, "steps_per_eval": 100, "eval_items": 8}
STEPS = 40
# Seconds, in which it can be disturbed. The model soon sorts all digits, and groups of equal scores would take minutes.
LONG = {**SHORT, "total_steps": STEPS, "ensure_scores_are_not_same": False}
SAVES_EACH_STEP = {"save_checkpoint_interval": 1}


@dataclass(frozen=True)
class Trained:
    """The finished run `first`."""

    rlctl: Rlctl
    file: str
    said: str


@pytest.fixture(scope="module")
def trained(shared_rlctl: Rlctl, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    write_run = run_writer(tmp_path_factory.mktemp("runs"))
    file = write_run("first", config={**SHORT, "eval_items": 250})
    ran = shared_rlctl("run", file, "--local")
    assert ran.returncode == 0, ran
    return Trained(shared_rlctl, file, ran.stdout)


@pytest.mark.smoke
def test_from_a_file_to_weights(trained: Trained) -> None:
    rlctl = trained.rlctl
    assert "trained sort_digits for 2 steps" in trained.said
    assert "95 % intervals" in trained.said
    assert f"local:{'~/.' if rlctl.root == Path.home() else ''}" in trained.said
    results = json.loads(rlctl("results", "first", "--local", "-o", "json").stdout)
    assert results["phase"] == "Succeeded"
    assert results["progress"]["step"] == 2
    assert results["weights"]["samplerPath"].startswith("tinker://")
    metrics = results["metrics"]
    assert 0.4 < metrics["baseline"]["low"] < metrics["baseline"]["value"] < 0.65
    assert metrics["heldOut"]["samples"] == 500
    listed = rlctl("list", "--local").stdout
    assert "Succeeded" in listed
    assert "2/2" in listed
    assert "step 2/2" in rlctl("logs", "first", "--local").stdout
    others_may = [path for path in rlctl.layout.root.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    assert others_may == []
    keys = rlctl.layout.service / "key"
    assert keys.read_text().strip() not in _everything_readable(rlctl)


@nightly
def test_a_step_is_computed_again(trained: Trained) -> None:
    ended = trained.rlctl("replay", "first", "--local", "--step", "2", "-o", "json")
    assert (ended.returncode, ended.stderr) == (0, "training step 1 again\n")
    found = json.loads(ended.stdout)
    assert (found["equal"], found["again"], found["state"]) == (True, 1, None), found
    loss = found["figures"]["train/loss"]
    assert loss["now"] == pytest.approx(loss["recorded"], rel=1e-3, abs=1e-5)


def test_a_finished_name_gets_a_number(trained: Trained) -> None:
    rlctl = trained.rlctl
    service = holder(rlctl.layout.service / "running.lock")
    second = rlctl("run", trained.file, "--local", "--detach")
    assert second.returncode == 0
    assert "first is over (Succeeded), so this is first-2" in second.stderr
    rlctl.wait_for("first-2", lambda s: s.get("phase") in ("Running", "Succeeded"), "the second run to train")
    assert holder(rlctl.layout.service / "running.lock") == service
    assert rlctl("delete", "first-2", "--local").returncode == 0
    assert rlctl.store.get("RLTrainingRun", "default", "first-2") is None


@nightly
def test_an_unreachable_backend_costs_an_attempt(shared_rlctl: Rlctl, write_run: WriteRun) -> None:
    rlctl = shared_rlctl
    file = write_run(
        "survivor",
        config=LONG,
        trainer={"backend_deadline_seconds": 5.0, **SAVES_EACH_STEP},
    )
    assert rlctl("run", file, "--local", "--detach").returncode == 0
    rlctl.wait_for("survivor", lambda s: s.get("progress", {}).get("step", 0) >= 2, "two steps")
    service = holder(rlctl.layout.service / "running.lock")
    assert service is not None
    starting = FileLock(rlctl.layout.service / "starting.lock")
    assert starting.take()  # it cannot be restarted while this is held
    os.kill(service, signal.SIGKILL)
    rlctl.wait_for("survivor", lambda s: s.get("attempts"), "the first attempt's end")
    starting.give_back()
    status = rlctl.wait_for("survivor", lambda s: s.get("phase") in ("Succeeded", "Failed"), "the end")
    assert status["phase"] == "Succeeded", status
    first, *others = status["attempts"]
    assert first["reason"] == "BackendUnreachable"
    assert first["steps"] >= 2
    assert others[-1]["steps"] == STEPS  # a busy machine may take longer than one attempt's 5 s to start a service


def test_a_killed_backend_returns_where_it_was(shared_rlctl: Rlctl, write_run: WriteRun) -> None:
    """A patient trainer reopens what it saved there, and the attempt continues."""
    rlctl, file = shared_rlctl, write_run("patient", config=LONG, trainer=SAVES_EACH_STEP)
    assert rlctl("run", file, "--local", "--detach").returncode == 0
    rlctl.wait_for("patient", lambda s: s.get("progress", {}).get("step", 0) >= 1, "a step")
    lock, port = rlctl.layout.service / "running.lock", rlctl.layout.service / "port"
    killed, where = holder(lock), port.read_text()
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    status = rlctl.wait_for("patient", lambda s: s.get("phase") in ("Succeeded", "Failed"), "the end")
    assert [(attempt["reason"], attempt["steps"]) for attempt in status["attempts"]] == [("Succeeded", STEPS)], status
    assert holder(lock) not in (None, killed)
    assert port.read_text() == where


@nightly
def test_a_rejected_key_is_final(trained: Trained, write_run: WriteRun) -> None:
    rlctl = trained.rlctl
    keys = rlctl.layout.service / "key"
    right = keys.read_text()
    keys.write_text("tml-wrong\n")
    try:
        ran = rlctl("run", write_run("refused-key", config=SHORT), "--local")
    finally:
        keys.write_text(right)
    assert ran.returncode == 1, ran
    status = rlctl.status("refused-key")
    assert (status["phase"], status["failure"]["reason"], status["failure"]["exitCode"]) == (
        "Failed",
        "CredentialsRefused",
        3,
    )
    assert "tml-wrong" not in json.dumps(status)


@nightly
def test_a_killed_environment_costs_an_attempt(shared_rlctl: Rlctl, write_run: WriteRun) -> None:
    rlctl = shared_rlctl
    file = write_run("bereaved", config=LONG, trainer=SAVES_EACH_STEP)
    assert rlctl("run", file, "--local", "--detach").returncode == 0
    rlctl.wait_for("bereaved", lambda s: s.get("progress", {}).get("step", 0) >= 1, "a step")
    pod = rlctl.status("bereaved")["podName"]
    listed = subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    mine = [line.split() for line in listed.splitlines() if f"{pod}/volumes/config" in line and " environment " in line]
    os.kill(int(mine[0][0]), signal.SIGKILL)
    status = rlctl.wait_for("bereaved", lambda s: s.get("phase") in ("Succeeded", "Failed"), "the end")
    assert status["phase"] == "Succeeded", status
    assert [attempt["reason"] for attempt in status["attempts"]] == ["EnvironmentFailed", "Succeeded"]
    assert status["progress"]["step"] == STEPS
    (folder,) = rlctl.root.rglob(f"bereaved-{status['podName'].split('-')[1]}-rollouts")
    trained = trained_items(folder, STEPS)
    assert len(trained) == len(set(trained)), "the second attempt goes on behind the first one's items"


@pytest.fixture
def disk_of_64_kb(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "pods", "64k") as folder:
        yield folder


def test_a_full_disk_in_the_journals_folder(disk_of_64_kb: Path, rlctl: Rlctl, write_run: WriteRun) -> None:
    assert rlctl("run", write_run("full", config=SHORT), "--local", "--detach").returncode == 0
    rlctl.wait_for("full", lambda s: "no room is left" in s.get("message", ""), "the status to name the full disk")
    assert rlctl("delete", "full", "--local").returncode == 0


def _everything_readable(rlctl: Rlctl) -> str:
    """All logs, objects and events in the state folder."""
    kinds: list[Any] = [
        *rlctl.root.glob("objects/**/*.json"),
        *rlctl.root.glob("**/*.log"),
        *rlctl.root.glob("**/*.jsonl"),
    ]
    return "\n".join(path.read_text(errors="replace") for path in kinds)
