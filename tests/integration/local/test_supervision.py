"""A run's life under the real supervisor, with scripts as containers."""

import os
import signal
import subprocess
import time
from typing import Any

import pytest
from tests.integration.local.conftest import Rlctl
from tests.integration.local.scripted import LEAVES, RUN_FILE, SILENT, SUCCEEDS, WORKS_ON, start_scripted


def ended(status: dict[str, Any]) -> bool:
    return status.get("phase") in ("Succeeded", "Failed")


def running(status: dict[str, Any]) -> bool:
    return status.get("phase") == "Running"


def start_working(rlctl: Rlctl, trainer: str = WORKS_ON) -> None:
    start_scripted(rlctl.store, "run", trainer=trainer)
    rlctl("get", "run", "--local")
    rlctl.wait_for("run", running, "the run to work")


def test_success(rlctl: Rlctl) -> None:
    start_scripted(rlctl.store, "run", trainer=SUCCEEDS, environment=LEAVES)
    watched = rlctl("watch", "run", "--local")
    assert watched.returncode == 0, watched
    assert "tinker://s/sampler_weights/3" in watched.stdout
    status = rlctl.status("run")
    assert status["phase"] == "Succeeded"
    assert status["weights"]["samplerPath"] == "tinker://s/sampler_weights/3"
    rlctl.until_unsupervised("run")
    assert rlctl("logs", "run", "--local").stdout == "trained\n"
    assert "over (Succeeded); there is nothing to stop" in rlctl("stop", "run", "--local").stderr
    assert rlctl("stop", "run", "--local").returncode == 2
    assert rlctl("wait", "run", "--local").returncode == 0


@pytest.mark.parametrize(
    ("trainer", "environment", "reason", "said"),
    [
        pytest.param(
            "result('failed', error={'class': 'environment', 'message': 'it left'}); sys.exit(1)",
            "sys.exit('error: ValueError: no items')",
            "EnvironmentFailed",
            "ValueError: no items",
            id="the environment raises",
        ),
        pytest.param(
            "result('failed', error={'class': 'environment', 'message': 'it left at step 1'}); sys.exit(1)",
            "sys.exit(0)",
            "EnvironmentLeftEarly",
            "it left at step 1",
            id="the environment leaves early",
        ),
        pytest.param("sys.exit('error: boom')", WORKS_ON, "TrainerFailed", "boom", id="the trainer fails"),
        pytest.param("sys.exit(2)", WORKS_ON, "ConfigInvalid", "", id="bad configuration"),
        pytest.param("sys.exit(3)", WORKS_ON, "CredentialsRefused", "", id="the key is refused"),
    ],
)
def test_failures(rlctl: Rlctl, trainer: str, environment: str, reason: str, said: str) -> None:
    serve_and_end = "serve(); time.sleep(0.2); "
    environment = environment if environment != WORKS_ON else "serve(); time.sleep(2)"
    start_scripted(
        rlctl.store, "run", trainer=serve_and_end + trainer, environment=serve_and_end + environment, backoffLimit=0
    )
    watched = rlctl("watch", "run", "--local")
    assert watched.returncode == 1, watched
    status = rlctl.status("run")
    assert (status["phase"], status["failure"]["reason"]) == ("Failed", reason)
    assert said in status["message"]
    assert said in watched.stdout


def test_a_run_that_never_starts_working_fails_at_its_deadline(rlctl: Rlctl) -> None:
    start_scripted(rlctl.store, "run", trainer="serve(); wait()", environment=SILENT, startDeadlineSeconds=6)
    watched = rlctl("watch", "run", "--local")
    assert watched.returncode == 1, watched
    status = rlctl.status("run")
    assert status["failure"]["reason"] == "StartDeadlineExceeded"
    assert "Waiting for environment" in status["message"]


def test_stop_and_resume(rlctl: Rlctl, tmp_path: Any) -> None:
    start_working(rlctl)
    stopped = rlctl("stop", "run", "--local")
    assert stopped.returncode == 0, stopped
    status = rlctl.status("run")
    assert status["phase"] == "Stopped"
    assert status["checkpoint"] == {"step": 3, "statePath": "tinker://s/weights/3"}
    rlctl.until_unsupervised("run")
    file = tmp_path / "run.yaml"
    file.write_text(RUN_FILE)
    keyless = rlctl("run", str(file), "--local", "--detach")
    assert keyless.returncode == 2
    assert "TINKER_API_KEY is not set" in keyless.stderr
    again = rlctl("run", str(file), "--local", "--detach", TINKER_API_KEY="tml-test")
    assert again.returncode == 0, again
    assert "continues from its last checkpoint" in again.stderr
    assert rlctl.wait_for("run", running, "the second attempt")["attempt"] == 2
    attached = rlctl("run", str(file), "--local", "--detach")
    assert "is running: this follows it" in attached.stderr


def test_a_killed_supervisor_costs_only_an_attempt(rlctl: Rlctl) -> None:
    start_working(rlctl, "serve(); result('running'); print(os.getpid(), flush=True); wait()")
    trainer, supervisor = int(rlctl("logs", "run", "--local").stdout), rlctl.supervisor("run")
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    until_gone(trainer)
    assert rlctl("list", "--local").returncode == 0
    status = rlctl.wait_for("run", lambda s: running(s) and s["attempt"] == 2, "the second attempt")
    assert (status["attempts"][0]["reason"], status["attempts"][0]["steps"]) == ("SupervisorLost", 3)
    assert rlctl.supervisor("run") not in (None, supervisor)


def test_delete_ends_the_processes_and_removes_the_objects(rlctl: Rlctl) -> None:
    start_working(rlctl, "serve(); print(os.getpid(), flush=True); wait()")
    trainer = int(rlctl("logs", "run", "--local").stdout)
    assert rlctl("delete", "run", "--local").returncode == 0
    until_gone(trainer)
    rlctl.until_unsupervised("run")
    assert not list(rlctl.layout.objects.rglob("*.json"))
    assert not list((rlctl.root / "pods").rglob("*.log"))


def test_a_finished_run_expires_without_a_waiting_process(rlctl: Rlctl) -> None:
    ttl = {"ttlSecondsAfterFinished": 3600}
    start_scripted(rlctl.store, "run", trainer=SUCCEEDS, environment=LEAVES, **ttl)
    assert rlctl("watch", "run", "--local").returncode == 0
    rlctl.until_unsupervised("run")

    set_back_the_end(rlctl, "run")
    assert "No runs in" in rlctl("list", "--local").stdout
    left = [path for path in rlctl.root.rglob("*") if path.is_file() and "supervisors" not in path.parts]
    assert left == [rlctl.layout.lock]


def test_another_runs_supervisor_removes_expired_runs(rlctl: Rlctl) -> None:
    start_scripted(rlctl.store, "old", trainer=SUCCEEDS, environment=LEAVES, ttlSecondsAfterFinished=3600)
    assert rlctl("watch", "old", "--local").returncode == 0
    rlctl.until_unsupervised("old")
    set_back_the_end(rlctl, "old")
    start_scripted(rlctl.store, "new", trainer=SUCCEEDS, environment=LEAVES)
    assert rlctl("watch", "new", "--local").returncode == 0
    assert rlctl.store.get("RLTrainingRun", "default", "old") is None
    assert {folder.name.split("-")[0] for folder in rlctl.layout.all_pod_folders} == {"new"}


def test_waiting_has_a_deadline_and_a_goal(rlctl: Rlctl) -> None:
    start_scripted(rlctl.store, "run", trainer=WORKS_ON)
    timed_out = rlctl("wait", "run", "--local", "--timeout", "1")
    assert timed_out.returncode == 124, timed_out
    assert "timed out waiting for run run" in timed_out.stderr
    assert rlctl("wait", "run", "--local", "--until", "step=3", "--timeout", "60").returncode == 0


def test_logs_are_followed_to_the_containers_end(rlctl: Rlctl) -> None:
    start_working(rlctl, "serve()\nfor n in range(5): print(n, flush=True); time.sleep(0.3)\nresult('succeeded')")
    follower = rlctl.start("logs", "run", "--local", "-f")
    output, errors = follower.communicate(timeout=60)
    assert output.splitlines() == ["0", "1", "2", "3", "4"], errors
    assert rlctl("logs", "run", "--local", "--tail", "2").stdout == "3\n4\n"


def set_back_the_end(rlctl: Rlctl, name: str) -> None:
    """The run has been over for a long time."""
    over = {"completionTime": "2026-01-01T00:00:00Z"}
    rlctl.store.update("RLTrainingRun", "default", name, lambda run: run["status"].update(over))


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip("Z \n"):
        assert time.monotonic() < deadline, f"process {pid} is still there after 60 s"
        time.sleep(0.05)
