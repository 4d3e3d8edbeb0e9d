"""The operator as a process: how it ends, and its messages when it cannot serve."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cluster.control_plane import FORMER_TOKEN, ControlPlane
from tests.integration.cluster.operator_process import OperatorProcess
from tests.ports import free_port


def run_to_its_end(kubeconfig: Path, *flags: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "rl_operator", "--kubeconfig", str(kubeconfig), "--connect-seconds", "1"]
    quiet = ["--probe-port", "0", "--metrics-port", "0", "--log-format", "text"]
    done = subprocess.run([*command, *quiet, *flags], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


@pytest.fixture
def second_operator(control_plane: ControlPlane) -> Iterator[OperatorProcess]:
    """One that serves a separate namespace, so that it does not interfere."""
    process = OperatorProcess(control_plane.kubeconfig(), "--namespace", "default")
    try:
        yield process
    finally:
        process.close()


def test_sigterm_ends_it_cleanly_within_seconds(second_operator: OperatorProcess) -> None:
    second_operator.start()
    before = time.monotonic()
    assert second_operator.stop() == 0, second_operator.log
    assert time.monotonic() - before < 20
    assert "Traceback" not in second_operator.log


def test_metrics_are_served(control_plane: ControlPlane) -> None:
    port = free_port()
    flags = ("--namespace", "default", "--metrics-host", "127.0.0.1", "--metrics-port", str(port))
    process = OperatorProcess(control_plane.kubeconfig(), *flags)
    try:
        process.start()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
            assert "rl_operator_api_calls_total" in response.read().decode()
    finally:
        process.close()


def test_an_unreachable_api_server(control_plane: ControlPlane) -> None:
    nowhere = f"https://127.0.0.1:{free_port()}"
    code, said = run_to_its_end(control_plane.kubeconfig(server=nowhere))
    assert code == 3
    assert f"the API server {nowhere} does not answer" in said
    assert "tried for 1 s" in said
    assert "Traceback" not in said


def test_a_rejected_token(control_plane: ControlPlane) -> None:
    code, said = run_to_its_end(control_plane.kubeconfig(token="wrong-token"))
    assert code == 3
    assert "401" in said
    assert "Unauthorized" in said
    assert "wrong-token" not in said
    assert "Traceback" not in said


def test_missing_permissions(control_plane: ControlPlane) -> None:
    code, said = run_to_its_end(control_plane.kubeconfig(token="powerless-token"))
    assert code == 3
    assert "403" in said
    assert 'cannot list resource "' in said  # all kinds are read concurrently: one of them is refused first
    assert "Traceback" not in said


def test_revoked_credentials_end_it(lonely_plane: ControlPlane) -> None:
    process = OperatorProcess(lonely_plane.kubeconfig(FORMER_TOKEN), "--namespace", "default", "--log-format", "text")
    try:
        process.start()
        lonely_plane.revoke(FORMER_TOKEN)
        assert process.until_ended() == 3, process.log
        last_words = [line for line in process.log.splitlines() if " ERROR " in line and " rl_operator: " in line]
        assert "the API server answered 401: Unauthorized" in last_words[-1], process.log
    finally:
        process.close()
        lonely_plane.accept_all_tokens()


def test_a_context_that_does_not_exist(control_plane: ControlPlane) -> None:
    code, said = run_to_its_end(control_plane.kubeconfig(), "--context", "nope")
    assert code == 2
    assert "nope" in said
    assert "Traceback" not in said
