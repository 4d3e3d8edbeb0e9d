"""Jobs of this machine, with real processes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cluster.polling import wait_for

from rl_operator.local.local_jobs import LocalJobs
from rl_operator.local.state.layout import Layout
from rl_operator.local.sweep import remove_traces
from rl_operator.operator_errors import ConflictError, RefusedError

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


def until_over(jobs: LocalJobs) -> None:
    wait_for("the process has ended", lambda: not jobs.is_running("team-a", NAME, "model-0"))


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
    assert jobs.is_running("team-a", NAME, "model-0")
    remove_traces(jobs.layout, "team-a", "sorting", "0a1b2c3d")
    assert not jobs.is_running("team-a", NAME, "model-0")
    assert list(jobs.all("team-a")) == []
