"""A Tinker service in a process of its own, as benchmarks use it."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import tinker
from tests.benchmarks.meter import resident_mib

KEY = "tml-bench"
START_SECONDS = 120
STOP_SECONDS = 20


@dataclass(frozen=True)
class TinkerProcess:
    """`seconds` from the command to the first request that is served, `idle_mib` of memory then."""

    pid: int
    url: str
    seconds: float
    idle_mib: float
    _clients: list[tinker.ServiceClient] = field(default_factory=list)

    def client(self) -> tinker.ServiceClient:
        self._clients.append(tinker.ServiceClient(base_url=self.url, api_key=KEY))
        return self._clients[-1]

    def close_clients(self) -> None:
        """Their heartbeats would go on, and complain."""
        for client in self._clients:
            client.close("success").result(STOP_SECONDS)

    def env_vars(self) -> dict[str, str]:
        """What a client in another process needs."""
        return {"TINKER_BASE_URL": self.url, "TINKER_API_KEY": KEY, "TINKER_TELEMETRY": "0"}


@contextmanager
def tinker_service(*options: str) -> Iterator[TinkerProcess]:
    """Serve with these options of the command, on a free port and with an empty data folder, until the block ends."""
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        port_file, began = Path(folder, "port"), time.monotonic()
        command = [sys.executable, "-c", "from tinker_service.service_command import main; main()", "--port", "0"]
        paths = ["--data", str(Path(folder, "data")), "--port-file", str(port_file)]
        log = Path(folder, "log")
        with log.open("wb") as log_file:
            process = subprocess.Popen(
                [*command, *paths, *options], env={**os.environ, "TINKER_API_KEY": KEY}, stderr=log_file
            )
        try:
            while not port_file.exists():
                alive = process.poll() is None and time.monotonic() < began + START_SECONDS
                assert alive, f"the Tinker service did not start: {log.read_text()[-2000:]}"
                time.sleep(0.01)
            seconds, url = time.monotonic() - began, f"http://127.0.0.1:{port_file.read_text().strip()}"
            served = TinkerProcess(process.pid, url, seconds, resident_mib(process.pid))
            yield served
            served.close_clients()
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """By SIGTERM, or by SIGKILL if that takes too long."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
