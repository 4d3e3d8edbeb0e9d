"""Containers of Jobs, and when a local run needs a supervisor."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cluster.polling import wait_for
from tests.integration.local.conftest import end_everything
from tests.integration.local.scripted import WORKS_ON, start_scripted

from rl_operator.local.garbage_collection import remove_traces
from rl_operator.local.state.layout import Layout
from rl_operator.local.state.locks import holder
from rl_operator.local.state.state_store import StateStore
from rl_operator.operator_errors import ConflictError, GoneError, RefusedError
from rl_operator.targets.local_processes import LocalJobs, Supervisors, is_at_rest, owner
from rl_operator.targets.local_target import LocalTarget

pytestmark = pytest.mark.process

CONFIG = {"name": "config", "configMap": {"name": "n", "items": [{"key": "a.txt", "path": "below/a.txt"}]}}
TEXTS = {"data": {"a.txt": "hello\n"}}
NAME = "sorting-0a1b2-t3c4"


def job(*command: str, **env_vars: Any) -> dict[str, Any]:
    container = {
        "name": "model-0",
        "command": [*command],
        "env": [{"name": name, "valueFrom": source} for name, source in env_vars.items()],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/rl"}],
    }
    metadata = {"name": NAME, "namespace": "team-a", "labels": {"one": "1"}}
    return {"metadata": metadata, "spec": {"template": {"spec": {"containers": [container], "volumes": [CONFIG]}}}}


@pytest.fixture
def jobs(tmp_path: Path) -> LocalJobs:
    return LocalJobs(Layout(tmp_path))


def log(jobs: LocalJobs) -> str:
    return jobs.layout.pod("team-a", NAME).log("model-0").read_text()


def state_of(jobs: LocalJobs) -> str:
    return jobs.pod(job()).containers["model-0"].state


def until_over(jobs: LocalJobs) -> None:
    wait_for("the process has ended", lambda: state_of(jobs) == "ended")


def test_containers_are_processes_with_their_files_and_a_log(jobs: LocalJobs) -> None:
    jobs.create(job("cat", "/etc/rl/below/a.txt"), TEXTS, os.environ)
    until_over(jobs)
    assert log(jobs) == "hello\n"
    [found] = jobs.all("team-a")
    assert found["metadata"]["name"] == NAME
    assert found["metadata"]["creationTimestamp"]
    assert list(jobs.all("team-b")) == []


def test_a_process_gets_only_the_keys_its_container_names(jobs: LocalJobs) -> None:
    secret = {"secretKeyRef": {"name": "provider", "key": "k"}}
    environ = {**os.environ, "RL_INFERENCE_API_KEY": "sk-named", "OTHER_KEY": "sk-other"}
    jobs.create(job("env", RL_INFERENCE_API_KEY=secret), TEXTS, environ)
    until_over(jobs)
    assert "RL_INFERENCE_API_KEY=sk-named" in log(jobs)
    assert "sk-other" not in log(jobs)
    assert "sk-named" not in (jobs.layout.pod("team-a", NAME).root / "job.json").read_text()


REFUSED: dict[str, Callable[[], dict[str, Any]]] = {
    "no such program": lambda: job("no-such-program"),
    "no key": lambda: job("env", RL_INFERENCE_API_KEY={"secretKeyRef": {"name": "provider", "key": "k"}}),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_an_impossible_start_is_refused_and_leaves_nothing(jobs: LocalJobs, make: Callable[[], dict[str, Any]]) -> None:
    with pytest.raises(RefusedError, match=r"the trial cannot be started: .*(no-such-program|RL_INFERENCE_API_KEY)"):
        jobs.create(make(), TEXTS, {"PATH": os.environ["PATH"]})
    assert list(jobs.all("team-a")) == []
    jobs.create(job("true"), TEXTS, os.environ)  # the name is free
    until_over(jobs)


def test_a_name_is_taken_once_and_processes_end_with_their_run(jobs: LocalJobs) -> None:
    jobs.create(job("sleep", "600"), TEXTS, os.environ)
    with pytest.raises(ConflictError, match=f"there is a Job {NAME} already"):
        jobs.create(job("sleep", "600"), TEXTS, os.environ)
    assert state_of(jobs) == "running"
    remove_traces(jobs.layout, "team-a", "sorting", "0a1b2c3d")
    assert state_of(jobs) == "ended"
    assert list(jobs.all("team-a")) == []


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


def test_who_asks_after_the_supervisor_died_gets_its_successors_words(process: None, tmp_path: Path) -> None:
    layout, notes = Layout(tmp_path), list[str]()
    store, lock = StateStore(layout), layout.supervisor_lock("default", "run")
    start_scripted(store, "run", trainer=WORKS_ON)
    target = LocalTarget(layout, "", notes.append)
    try:
        target.look_after("default", "run")
        began = time.monotonic()
        while target.run("default", "run")["status"].get("phase") != "Running":
            assert time.monotonic() - began < PATIENCE_SECONDS, "the run does not work after 60 s"
            time.sleep(0.05)
        pid = holder(lock)
        assert pid is not None
        for _ in range(2):
            os.kill(pid, signal.SIGSTOP)
            wait_for("it is told that it is frozen", lambda: target.run("default", "run") and notes)
            assert f"`kill -CONT {pid}`" in notes.pop()
            os.kill(pid, signal.SIGCONT)
            wait_for("it goes on", lambda: Supervisors(store).frozen("default", "run") is None)
            target.run("default", "run")
        os.kill(pid, signal.SIGKILL)
        while holder(lock):
            time.sleep(0.01)
        status = target.run("default", "run")["status"]
        assert notes or [attempt["reason"] for attempt in status["attempts"]] == ["SupervisorLost"]
    finally:
        end_everything(tmp_path)


def supervising(root: Path) -> list[int]:
    """Our own children that supervise a run of that state folder."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if str(root) in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")]
