"""Fixtures that any test may use: real processes on ports the kernel chose, ended with the session."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.forking import SERVICE, ForkedPopen
from tests.s3_server import running_s3_server

pytest_plugins = (
    "tests.plugins.certificates",
    "tests.plugins.collection",
    "tests.plugins.programs",
    "tests.plugins.scheduling",
    "tests.plugins.summary",
    "tests.plugins.tiers",
)

TINKER_KEY = "tml-test"
# The same examples each time: failures depend neither on luck nor on how busy the machine is.
settings.register_profile(
    "certain", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("certain"), derandomize=False, print_blob=True)
settings.load_profile("certain")

START_SECONDS = 100.0  # five, on a machine that is not busy


@dataclass(frozen=True)
class TinkerServiceProcess:
    """A running Tinker service with the bundled model."""

    url: str
    key: str
    process: subprocess.Popen[bytes] | ForkedPopen
    log: Path

    @property
    def env_vars(self) -> dict[str, str]:
        """What the SDK needs to find it."""
        return {"TINKER_BASE_URL": self.url, "TINKER_API_KEY": self.key, "TINKER_TELEMETRY": "0"}


@contextmanager
def running_tinker_service(folder: Path, *options: str, real_start: bool = False) -> Iterator[TinkerServiceProcess]:
    """Run `tinker-service` with the bundled model; its checkpoints stay in the folder."""
    port_file, log = folder / "port", folder / "log"
    port_file.unlink(missing_ok=True)
    arguments = ["--data", str(folder / "data"), "--port", "0", "--port-file", str(port_file)]
    env_vars = {**os.environ, "TINKER_API_KEY": TINKER_KEY}
    process: subprocess.Popen[bytes] | ForkedPopen
    with log.open("ab") as output:
        if real_start:
            program = Path(sys.executable).with_name("tinker-service")
            process = subprocess.Popen([program, *arguments, *options], env=env_vars, stdout=output, stderr=output)
        else:
            process = ForkedPopen([*arguments, *options], env_vars, (0, output.fileno(), output.fileno()), code=SERVICE)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not port_file.exists():
            assert process.poll() is None, f"the Tinker service ended:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"no Tinker service after {START_SECONDS} s:\n{log.read_text()}"
            time.sleep(0.05)
        yield TinkerServiceProcess(f"http://127.0.0.1:{port_file.read_text().strip()}", TINKER_KEY, process, log)
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="session")
def start_tinker_service(process: None) -> Callable[..., AbstractContextManager[TinkerServiceProcess]]:
    """A context manager of (folder, *options), for tests that need a service of their own."""
    return running_tinker_service


@pytest.fixture(scope="session")
def tinker_service(process: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinkerServiceProcess]:
    """One Tinker service for the whole session, really started."""
    with running_tinker_service(tmp_path_factory.mktemp("tinker-service"), real_start=True) as service:
        yield service


@pytest.fixture(scope="module")
def s3(process: None) -> Iterator[str]:
    """The URL of a server with the bucket `rollouts`."""
    with running_s3_server("rollouts") as url:
        yield url
