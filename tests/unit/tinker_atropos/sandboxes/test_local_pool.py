"""Leases from a pool, whose sandboxes are stand-ins where their start does not matter."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tinker_atropos.sandboxes.conftest import SECONDS, carriers, eventually, in_background, server_of, shell

from tinker_atropos.sandboxes import local_pool, stream_sandbox
from tinker_atropos.sandboxes.local_pool import LocalSandbox, LocalSandboxes
from tinker_atropos.sandboxes.sandbox import (
    Command,
    CommandResult,
    NotIsolatedError,
    SandboxError,
    SandboxLimits,
    SandboxLostError,
)
from tinker_atropos.sandboxes.sandbox_server.process_tree import _read


class FakeSandbox:
    """Starts at once, and does nothing."""

    def __init__(self) -> None:
        self.is_lost = self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class FakeStarts:
    """Of sandboxes: those that were made; `error` is raised instead, `gate` holds each start up."""

    def __init__(self) -> None:
        self.made: list[FakeSandbox] = []
        self.error: SandboxLostError | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.asked = 0

    def __call__(self, _limits: SandboxLimits) -> Any:
        self.asked += 1
        assert self.gate.wait(SECONDS)
        if self.error is not None:
            raise self.error
        self.made.append(FakeSandbox())
        return self.made[-1]


@pytest.fixture
def starts() -> FakeStarts:
    return FakeStarts()


@pytest.fixture
def pool_of(starts: FakeStarts) -> Iterator[Callable[..., LocalSandboxes]]:
    pools: list[LocalSandboxes] = []

    def making(warm: int) -> LocalSandboxes:
        pools.append(LocalSandboxes(SandboxLimits(), warm, starts))
        return pools[-1]

    yield making
    starts.gate.set()
    for pool in pools:
        pool.close()


def test_sandboxes_are_started_before_they_are_leased(
    pool_of: Callable[..., LocalSandboxes], starts: FakeStarts
) -> None:
    pool = pool_of(2)
    eventually("two warm sandboxes", lambda: len(starts.made) == 2)
    eventually("ready", lambda: len(pool._ready) == 2)
    assert pool.lease() is starts.made[0]
    eventually("another one in its place", lambda: len(starts.made) == 3)


def test_one_that_was_killed_while_it_waited_is_not_leased(
    pool_of: Callable[..., LocalSandboxes], starts: FakeStarts
) -> None:
    pool = pool_of(2)
    eventually("ready", lambda: len(pool._ready) == 2)
    killed, alive = starts.made
    killed.is_lost = True
    assert pool.lease() is alive
    assert killed.is_closed


def test_a_start_that_fails_is_told_to_the_lease(pool_of: Callable[..., LocalSandboxes], starts: FakeStarts) -> None:
    starts.error = SandboxLostError("no more processes")
    pool = pool_of(1)
    eventually("a try", lambda: starts.asked)
    with pytest.raises(SandboxLostError, match="no more processes"):
        pool.lease()
    starts.error = None
    assert pool.lease()


def test_closing_ends_all_leased_or_not(pool_of: Callable[..., LocalSandboxes], starts: FakeStarts) -> None:
    pool = pool_of(1)
    pool.lease()
    eventually("ready", lambda: len(pool._ready) == 1)
    pool.close()
    assert all(sandbox.is_closed for sandbox in starts.made)
    with pytest.raises(SandboxLostError, match="the environment has ended"):
        pool.lease()


def test_one_that_starts_while_the_pool_is_closed_is_ended(
    pool_of: Callable[..., LocalSandboxes], starts: FakeStarts
) -> None:
    starts.gate.clear()
    pool = pool_of(1)
    eventually("a start", lambda: starts.asked)
    pool.close()
    starts.gate.set()
    eventually("ended", lambda: starts.made and starts.made[0].is_closed)


@pytest.mark.process
def test_many_at_once_have_each_their_own() -> None:
    """Sixteen rollouts write and read the same name; none is left in the end."""
    pool = LocalSandboxes(SandboxLimits(), warm=1)
    outcomes: list[str] = []

    def roll_out(number: int) -> None:
        sandbox = pool.lease()
        sandbox.write_file("name", str(number).encode())
        outcomes.append(shell(sandbox, "cat name").output)

    threads = [threading.Thread(target=roll_out, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    sandboxes: list[LocalSandbox] = list(pool._all)
    servers = [server_of(sandbox) for sandbox in sandboxes]
    pool.close()
    assert sorted(outcomes, key=int) == [str(number) for number in range(16)]
    assert not any(b"sandbox_server" in _read(f"/proc/{server}/cmdline") for server in servers)


FORK_BOMB = "import os, signal\nfor _ in range(10):\n    os.fork()\nsignal.pause()"
"""Of 1024 processes: without a namespace, root has no other limit than the watch that is tested."""
THREAD_BOMB = "import threading\nwhile True:\n    threading.Thread(target=threading.Event().wait).start()"
FOUR_TIMES_60_MIB = "import os, signal\nos.fork(); os.fork()\nkept = os.urandom(60 * 2**20)\nsignal.pause()"
ENVIRONMENT = """
import sys, threading
from tinker_atropos.sandboxes.local_pool import LocalSandbox
from tinker_atropos.sandboxes.sandbox import Command, SandboxLimits
sandbox = LocalSandbox(SandboxLimits(), plain=sys.argv[1] == "True")
print(sandbox.folder)
spy = "cat /proc/*/environ 2>/dev/null | tr '\\\\0' '\\\\n' | grep -c '^KE[Y]='"
print(sandbox.run(Command(spy, 60)).output.strip())
print(sandbox.run(Command("setsid sleep 1000 >/dev/null 2>&1 & env", 60)).output.count("KEY="), flush=True)
sandbox.run(Command("sleep 1000", 1000))
"""

Start = Callable[..., LocalSandbox]


def python(text: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", text]


def hanging(sandbox: LocalSandbox, outcome: list[object], mark: str) -> threading.Thread:
    """A thread in which a command hangs; it has begun."""

    def run() -> None:
        try:
            outcome.append(shell(sandbox, "sleep 1000", 1000, env_vars={"MARK": mark}))
        except SandboxError as error:
            outcome.append(error)

    before = len(carriers(mark))
    thread = threading.Thread(target=run)
    thread.start()
    eventually("running", lambda: len(carriers(mark)) > before)
    return thread


def ended_by_the_watch(sandbox: LocalSandbox, program: list[str]) -> CommandResult:
    """And the sandbox goes on."""
    result = sandbox.run(Command(program, SECONDS))
    assert not result.timed_out
    eventually("empty", lambda: shell(sandbox, "echo on").output == "on\n")
    return result


def test_a_fork_bomb_costs_its_own_sandbox_only(start: Start, plain: bool) -> None:
    sandbox, other = start(plain=plain, processes=16), start(plain=plain)
    outcome: list[object] = []
    in_background(other, f"of-the-other-{plain}")
    result = ended_by_the_watch(sandbox, python(FORK_BOMB))
    assert result.exit_code == 137
    assert "[everything in the sandbox was killed: more than 16 processes]" in result.output
    assert carriers(f"of-the-other-{plain}")
    assert shell(other, "echo on").output == "on\n"
    assert not outcome


def test_threads_are_bounded(start: Start, plain: bool) -> None:
    """By the watch, or before that by the kernel."""
    result = ended_by_the_watch(start(plain=plain, processes=4), python(THREAD_BOMB))
    assert "more than 64 threads" in result.output or "can't start new thread" in result.output


def test_memory_is_bounded(start: Start, plain: bool) -> None:
    """Of one process by the kernel, of all together by the watch. Address space is not: runtimes reserve much."""
    sandbox = start(plain=plain, memory_mb=192)
    assert "MemoryError" in ended_by_the_watch(sandbox, python("bytearray(2**30)")).output
    together = ended_by_the_watch(sandbox, python(FOUR_TIMES_60_MIB))
    assert (together.exit_code, "more than 192 MiB of memory" in together.output) == (137, True)
    reserved = python("import mmap; mmap.mmap(-1, 2**34, flags=mmap.MAP_PRIVATE, prot=0); print('reserved')")
    assert sandbox.run(Command(reserved, SECONDS)).output == "reserved\n"


def test_closing_leaves_nothing(start: Start, plain: bool) -> None:
    sandbox, outcome = start(plain=plain), []
    in_background(sandbox, f"of-a-closed-one-{plain}")
    thread = hanging(sandbox, outcome, f"and-its-command-{plain}")
    sandbox.close()
    thread.join(SECONDS)
    assert isinstance(outcome[0], SandboxLostError)
    assert not carriers(f"of-a-closed-one-{plain}") + carriers(f"and-its-command-{plain}")
    assert not Path(sandbox.folder).exists()
    sandbox.close()
    with pytest.raises(SandboxLostError, match="gone"):
        shell(sandbox, "true")


@pytest.mark.parametrize("party", ["server", "outer process"])
def test_a_kill_leaves_nothing(start: Start, plain: bool, party: str) -> None:
    sandbox, outcome = start(plain=plain), []
    mark = f"of-a-killed-{party}-{plain}"
    in_background(sandbox, mark)
    thread = hanging(sandbox, outcome, mark)
    os.kill(server_of(sandbox) if party == "server" else sandbox._process.pid, signal.SIGKILL)
    thread.join(SECONDS)
    assert isinstance(outcome[0], SandboxLostError)
    eventually("ended: what ran in the sandbox", lambda: not carriers(mark))
    sandbox.close()
    assert not Path(sandbox.folder).exists()
    eventually("noticed: the end of the stream", lambda: sandbox.is_lost)


def test_what_starts_while_a_sandbox_ends_does_not_outlive_it(start: Start, plain: bool) -> None:
    """Each time its outer process is killed at another moment of three starts."""
    for moment in range(8):
        sandbox, mark = start(plain=plain), f"starts-while-it-ends-{plain}-{moment}"
        with ThreadPoolExecutor(3) as threads:
            for _ in range(3):
                threads.submit(shell, sandbox, "sleep 1000", 1000, env_vars={"MARK": mark})
            time.sleep(moment / 500)
            sandbox._process.kill()
        eventually("ended: what ran in the sandbox", lambda mark=mark: not carriers(mark))  # type: ignore[misc]


@pytest.mark.process
def test_an_environment_that_is_killed_leaves_nothing_and_tells_no_key(plain: bool) -> None:
    mark = f"KEY=secret-{os.getpid()}-{plain}"
    env_vars = {**os.environ, "KEY": mark.removeprefix("KEY=")}
    with subprocess.Popen(
        [sys.executable, "-c", ENVIRONMENT, str(plain)], env=env_vars, stdout=subprocess.PIPE, text=True
    ) as environment:
        assert environment.stdout is not None
        folder, seen, inherited = (environment.stdout.readline().strip() for _ in range(3))
        below = eventually("a command", lambda: carriers(f"HOME={folder}"))
        environment.kill()
    assert (seen, inherited) == ("0", "0")
    assert below
    eventually("ended: what ran in the sandbox", lambda: not carriers(f"HOME={folder}"))
    eventually("removed: its folder", lambda: not Path(folder).exists())


@pytest.mark.process
def test_where_isolation_is_a_must_there_is_no_sandbox_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(NotIsolatedError, match="this machine allows no namespaces"):
        LocalSandbox(SandboxLimits(must_isolate=True), plain=True)
    assert not list(tmp_path.iterdir())


def test_requests_are_answered_at_once(sandbox: LocalSandbox) -> None:
    """Two commands that wait for each other."""
    programs = [
        "mkfifo one two 2>/dev/null; echo 1 > one; cat two",
        "mkfifo one two 2>/dev/null; cat one; echo 2 > two",
    ]
    with ThreadPoolExecutor(2) as threads:
        outputs = list(threads.map(lambda text: shell(sandbox, text).output, programs))
    assert sorted(outputs) == ["1\n", "2\n"]


def test_threads_do_not_add_up(start: Start, plain: bool) -> None:
    sandbox = start(plain=plain)
    for _ in range(20):
        shell(sandbox, "true")
    assert eventually("ended: threads", lambda: len(os.listdir(f"/proc/{server_of(sandbox)}/task")) <= 3)  # noqa: PTH208
    assert not sandbox._waiting


def test_a_server_that_does_not_answer_is_lost(start: Start, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And killed, though it stands still."""
    monkeypatch.setattr(local_pool, "END_SECONDS", 0.2)
    sandbox = start(plain=plain)
    monkeypatch.setattr(stream_sandbox, "ANSWER_SECONDS", 0.2)
    server = server_of(sandbox)
    os.kill(server, signal.SIGSTOP)
    with pytest.raises(SandboxLostError, match="did not answer"):
        shell(sandbox, "true", 0)
    if plain:  # nothing but a wall ends a process that stands still and whose parent was killed
        os.kill(server, signal.SIGCONT)
    eventually("ended", lambda: not Path(f"/proc/{server}").exists())
    assert not Path(sandbox.folder).exists()


@pytest.mark.process
def test_a_start_that_fails_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(SandboxLostError, match="no sandbox can be started"):
        LocalSandbox(SandboxLimits())
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SandboxLostError, match="gone"):
        LocalSandbox(SandboxLimits())
    assert not list(tmp_path.iterdir())
