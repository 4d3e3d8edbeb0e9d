"""Sandboxes that end with their test, and a look at processes from outside of them."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tinker_atropos.sandboxes.pod_servers import PodProcess

from tinker_atropos.sandboxes.local_pool import LocalSandbox
from tinker_atropos.sandboxes.sandbox import Command, CommandResult, SandboxLimits
from tinker_atropos.sandboxes.stream_sandbox import StreamSandbox

SECONDS = 100.0  # one, on a machine that is not busy


def eventually(what: str, condition: Callable[[], Any]) -> Any:
    """What the condition says, once it is true."""
    deadline = time.monotonic() + SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, f"after {SECONDS:g} s: not yet {what}"
        time.sleep(0.01)
    return value


def shell(sandbox: StreamSandbox, text: str, timeout: float = SECONDS, **options: Any) -> CommandResult:
    return sandbox.run(Command(text, timeout, **options))


def carriers(mark: str) -> list[int]:
    """Processes of this machine that have a text in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def in_background(sandbox: StreamSandbox, mark: str) -> None:
    """A process that left its command, its session and its parent."""
    assert shell(sandbox, "(setsid sleep 1000 >/dev/null 2>&1 &)", env_vars={"MARK": mark}).exit_code == 0
    eventually("running in the background", lambda: carriers(mark))


def server_of(sandbox: LocalSandbox) -> int:
    """The inner process, by its number here."""
    outer = sandbox._process.pid
    return int(Path(f"/proc/{outer}/task/{outer}/children").read_text(encoding="ascii").split()[0])


def need(sandbox: LocalSandbox, wall: str) -> None:
    if wall not in sandbox.walls:
        pytest.skip(f"this kernel does not allow the wall {wall!r} here")


@pytest.fixture(scope="module")
def start(process: None) -> Iterator[Callable[..., LocalSandbox]]:
    """Start a sandbox; keywords as those of SandboxLimits, and `plain`."""
    started: list[LocalSandbox] = []

    def starting(*, plain: bool = False, **limits: Any) -> LocalSandbox:
        started.append(LocalSandbox(SandboxLimits(**limits), plain=plain))
        return started[-1]

    yield starting
    for sandbox in started:
        sandbox.close()


@pytest.fixture(scope="module", params=[False, True], ids=["walls", "plain"])
def plain(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def sandbox(start: Callable[..., LocalSandbox], plain: bool) -> LocalSandbox:
    """One for all tests of a module that leave it as it is."""
    return start(plain=plain)


@pytest.fixture
def pod(process: None, tmp_path: Path) -> Iterator[Callable[..., PodProcess]]:
    """Start the server of a pod; keywords as its settings, and `prefix`."""
    numbers = itertools.count()
    with ExitStack() as pods:
        yield lambda **settings: pods.enter_context(PodProcess(tmp_path / str(next(numbers)), **settings))
