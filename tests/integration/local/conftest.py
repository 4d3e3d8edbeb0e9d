"""`rlctl` as a process over a state folder of the session, so that all runs share one Tinker service."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests import forking

from rl_operator.local.state.layout import Layout
from rl_operator.local.state.locks import holder
from rl_operator.local.state.state_store import StateStore

if TYPE_CHECKING:
    from tests.integration.local.scene import Scene

RLCTL = Path(sys.executable).with_name("rlctl")
KEPT = ("PATH", "LANG", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
"""What rlctl sees of the tests' own environment variables: no key, and no cluster."""

DEADLINE_SECONDS = 280.0
"""Two workers that train at once on two cores are slow; pytest ends a test after 300 s."""


@dataclass(frozen=True)
class Rlctl:
    """Calls rlctl on a state folder, without a cluster and without keys."""

    root: Path
    program: Path = RLCTL

    @property
    def layout(self) -> Layout:
        return Layout(self.root)

    @property
    def store(self) -> StateStore:
        return StateStore(self.layout)

    def __call__(self, *arguments: str, **env_vars: str) -> subprocess.CompletedProcess[str]:
        """To its end: forked where the program is this Python's own (tests/forking.py)."""
        if self.program == RLCTL:
            together = self.env_vars | env_vars
            return forking.run(arguments, together, code=forking.RLCTL, timeout=DEADLINE_SECONDS)
        return subprocess.run(
            [self.program, *arguments],
            env=self.env_vars | env_vars,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen([self.program, *arguments], env=self.env_vars, stdout=pipe, stderr=pipe, text=True)

    @property
    def env_vars(self) -> dict[str, str]:
        kept = {key: os.environ[key] for key in KEPT if key in os.environ}
        return {**kept, "HOME": str(self.root), "RL_STATE_DIR": str(self.root)}

    def status(self, name: str) -> dict[str, Any]:
        manifest = json.loads(self("get", name, "--local", "-o", "json").stdout)
        status: dict[str, Any] = manifest.get("status", {})
        return status

    def wait_for(self, name: str, holds: Callable[[dict[str, Any]], object], awaited: str) -> dict[str, Any]:
        """The run's status, once a condition holds."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            run = self.store.get("RLTrainingRun", "default", name) or {}
            status: dict[str, Any] = run.get("status", {})
            if holds(status):
                return status
            assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS} s for {awaited}; the status is {status}"
            time.sleep(0.1)

    def supervisor(self, name: str) -> int | None:
        """The process id of the run's supervisor."""
        return holder(self.layout.supervisor_lock("default", name))

    def until_unsupervised(self, name: str) -> None:
        """A supervisor ends when there is nothing left to do."""
        deadline = time.monotonic() + 120
        while pid := self.supervisor(name):
            assert time.monotonic() < deadline, f"supervisor {pid} of {name} did not end within 120 s"
            time.sleep(0.05)


def end_everything(root: Path) -> None:
    """End the supervisors and the service of a state folder; they were started detached."""
    services = [root / "tinker-service", *root.glob("tinker-services/*")]
    locks = [*root.glob("supervisors/*/*.lock"), *(service / "running.lock" for service in services)]
    for lock in locks:
        if pid := holder(lock):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 120
    while any(holder(lock) for lock in locks):
        assert time.monotonic() < deadline, f"still alive after 120 s: {[lock for lock in locks if holder(lock)]}"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def shared_rlctl(process: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rlctl]:
    """For runs that train: they share the Tinker service."""
    root = tmp_path_factory.mktemp("state")
    yield Rlctl(root)
    end_everything(root)


@pytest.fixture
def rlctl(process: None, tmp_path: Path) -> Iterator[Rlctl]:
    """An empty state folder."""
    yield Rlctl(tmp_path)
    end_everything(tmp_path)


def run_writer(folder: Path) -> Callable[..., str]:
    """Writes a run's file and gives its path: `write_run("name", config={…}, trainer={…}, …)`."""

    def write(name: str, **spec: Any) -> str:
        document = {
            "apiVersion": "rl-operator.dev/v1alpha1",
            "kind": "RLTrainingRun",
            "metadata": {"name": name},
            "spec": {"environment": "sort_digits", "runtime": "tiny", **spec},
        }
        path = folder / f"{name[:40]}.yaml"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return write


@pytest.fixture
def write_run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., str]:
    """A second try finds no run of the first one's in a state that is shared: its own would get another name."""
    write = run_writer(tmp_path)
    is_second_try = getattr(request.node, "execution_count", 1) > 1
    if not (is_second_try and "shared_rlctl" in request.fixturenames):
        return write

    def write_again(name: str, **spec: Any) -> str:
        request.getfixturevalue("shared_rlctl")("delete", name, "--local")
        return write(name, **spec)

    return write_again


@pytest.fixture
def scene(rlctl: Rlctl, tmp_path: Path) -> "Scene":
    from tests.integration.local.scene import Scene

    return Scene(rlctl, tmp_path / "ledger")
