"""The operator as a real process: `python -m rl_operator` with the rights that it has in a cluster."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.integration.cluster.control_plane import OPERATOR_NAMESPACE
from tests.integration.cluster.polling import wait_for
from tests.ports import free_port

FAST = (
    "--poll-seconds", "0.2", "--progress-seconds", "0.5", "--backoff-seconds", "0.3",
    "--log-format", "text", "--log-level", "debug",
)  # fmt: skip
"""Flags that leave nothing to wait for."""

LOOPBACK = "127.0.0.1"
END_SECONDS = 240.0
"""Only ends a hang."""


class OperatorProcess:
    """May be killed and started again; its log is one file over all its lives.

    Without a lease, unless a flag names one: a test that restarts it is not about waiting for a lease to expire.
    """

    def __init__(self, kubeconfig: Path, *flags: str, env_vars: Mapping[str, str] | None = None) -> None:
        self._env_vars = {**os.environ, **(env_vars or {})}
        self._port = free_port()
        self._log = Path(tempfile.mkstemp(prefix="rl-operator-", suffix=".log")[1])
        self._command = [
            sys.executable, "-m", "rl_operator", "--kubeconfig", str(kubeconfig), "--metrics-port", "0",
            "--operator-namespace", OPERATOR_NAMESPACE, "--lease-name", "", *flags,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def last_error(self) -> str:
        """The last line of level ERROR or above (as text): at debug level, leftovers of kopf may come after it."""
        errors = [line for line in self.log.splitlines() if re.match(r"\S+ \S+ (ERROR|CRITICAL) ", line)]
        return errors[-1] if errors else ""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process and self.alive else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def spawn(self) -> None:
        """Start it and wait for nothing."""
        command = [*self._command, "--probe-host", LOOPBACK, "--probe-port", str(self._port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, env=self._env_vars, stdout=log, stderr=subprocess.STDOUT)

    def start(self) -> None:
        self.spawn()
        wait_for("the operator's /readyz answers 200", self._ready)

    def kill(self) -> None:
        """SIGKILL: nothing is cleaned up."""
        assert self._process
        self._process.kill()
        self._process.wait(60)

    def stop(self, seconds: float = 30.0) -> int:
        """SIGTERM; gives the exit code. Fails when it takes longer."""
        assert self._process
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(seconds)

    def until_ended(self) -> int:
        """The exit code, once it ends by itself."""
        assert self._process
        try:
            return self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the operator did not end within {END_SECONDS:.0f} s; it said:\n{self.log}")

    def close(self) -> None:
        if self._process and self._process.poll() is None:
            self.kill()
        self._log.unlink(missing_ok=True)

    def resident_mebibytes(self) -> float:
        """RSS, as the kernel counts it."""
        assert self._process
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def probe(self, path: str) -> tuple[int, str]:
        """The answer to a probe, code and sentence; code 0: none."""
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self._port}{path}", timeout=20) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except (urllib.error.URLError, OSError):
            return 0, ""

    def _ready(self) -> bool:
        assert self._process
        code = self._process.poll()
        if code is not None and f"cannot be served at {LOOPBACK}:{self._port}: " in self.log:
            self._port = free_port()  # another program was faster
            self.spawn()
            return False
        assert code is None, f"the operator ended with {code}:\n{self.log[-3000:]}"
        return self.probe("/readyz")[0] == 200
