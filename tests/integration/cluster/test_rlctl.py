"""rlctl against a real API server: the same verbs as on this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cluster.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace

RLCTL = Path(sys.executable).with_name("rlctl")

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def rlctl(control_plane: ControlPlane, runs: RunsNamespace) -> Call:
    """Calls rlctl in the test's namespace."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [RLCTL, *arguments, "-n", runs.namespace],
            env={**os.environ, "KUBECONFIG": str(control_plane.kubeconfig(ADMIN_TOKEN))},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., str]:
    def write(**spec: Any) -> str:
        document = {
            "apiVersion": "rl-operator.dev/v1alpha1",
            "kind": "RLTrainingRun",
            "metadata": {"name": "sorting"},
            "spec": {"environment": "sort_digits", "runtime": "tiny", "config": {"total_steps": TOTAL_STEPS}, **spec},
        }
        path = tmp_path / "run.json"
        path.write_text(json.dumps(document))
        return str(path)

    return write


def test_a_run_from_file_to_results(rlctl: Call, runs: RunsNamespace, write_run: Callable[..., str]) -> None:
    detached = rlctl("run", write_run(), "--detach")
    assert detached.returncode == 0, detached
    assert "cluster:" in detached.stdout
    pod = runs.until_pod()
    assert "is running: this follows it" in rlctl("run", write_run(), "--detach").stderr
    runs.succeed(pod)
    watched = rlctl("watch", "sorting")
    assert watched.returncode == 0, watched
    assert "tinker://m/sampler_weights/000004" in watched.stdout
    assert rlctl("wait", "sorting", "--timeout", "10").returncode == 0
    listed = rlctl("list")
    assert "Succeeded" in listed.stdout
    assert f"{TOTAL_STEPS}/{TOTAL_STEPS}" in listed.stdout
    shown = rlctl("get", "sorting")
    assert f"{runs.namespace}/sorting   Succeeded" in shown.stdout
    assert "Starting" in shown.stdout  # an event
    assert json.loads(rlctl("results", "sorting", "-o", "json").stdout)["phase"] == "Succeeded"
    again = rlctl("run", write_run(), "--detach")
    assert "so this is sorting-2" in again.stderr
    assert rlctl("delete", "sorting").returncode == 0
    assert rlctl("get", "sorting").returncode == 2


def test_a_failed_run_is_exit_code_1(rlctl: Call, runs: RunsNamespace, write_run: Callable[..., str]) -> None:
    rlctl("run", write_run(backoffLimit=0), "--detach")
    pod = runs.until_pod()
    runs.kubelet.start(pod)
    message = result("failed", steps=0, total=TOTAL_STEPS, error={"class": "internal", "message": "boom"})
    runs.kubelet.end(pod, "Failed", trainer=End(1, message))
    watched = rlctl("watch", "sorting")
    assert watched.returncode == 1, watched
    assert "boom" in watched.stdout


def test_a_refused_run_is_exit_code_2(rlctl: Call, write_run: Callable[..., str]) -> None:
    refused = rlctl("run", write_run(runtime="tony"))
    assert refused.returncode == 2, refused
    assert "RuntimeNotFound: spec.runtime" in refused.stderr
    assert "tiny" in refused.stderr


def test_stop_leaves_a_resumable_run(rlctl: Call, runs: RunsNamespace, write_run: Callable[..., str]) -> None:
    rlctl("run", write_run(suspend=True), "--detach")
    runs.until_phase("Stopped")
    stopped = rlctl("stop", "sorting")
    assert stopped.returncode == 0, stopped
    assert "cluster:" in stopped.stdout
    rlctl("run", write_run(), "--detach")
    assert runs.until_pod()


def test_validate_and_environments_ask_the_cluster(control_plane: ControlPlane, write_run: Callable[..., str]) -> None:
    env_vars = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig(ADMIN_TOKEN))}
    for arguments in (["validate", write_run()], ["environments"], ["doctor"], ["render", write_run()]):
        ended = subprocess.run(
            [RLCTL, *arguments], env=env_vars, capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == 0, ended
