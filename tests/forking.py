"""Processes of our programs without the seconds of CPU that their imports cost each start.

A process of its own has imported them already (`tests/preloaded.py`) and forks for each start: the standard library's
fork server, one per pytest process (one more with torch, for Tinker services, and one for `rlctl`), started when it is
first needed. A child gets what a new process would get (arguments, variables, folder, standard streams, signal
handlers, random numbers, a `__main__`), runs the program and ends as the interpreter does, and dies with pytest,
however that dies.

Not where a real start is needed: a test of the start itself, a command in front of the program, or a variable that a
library reads when it is imported (which is refused).
"""

import asyncio
import ctypes
import multiprocessing.forkserver as fork_server
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from multiprocessing import resource_tracker
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
PROGRAM = "from tinker_atropos.cli import main\nmain()\n"
"""What the console script `tinker-atropos` runs."""
SERVICE = "from tinker_service.service_command import main\nmain()\n"
"""What the console script `tinker-service` runs."""
RLCTL = "from rl_operator.cli import main\nmain()\n"
"""What the console script `rlctl` runs."""
NAMES = {RLCTL: "rlctl", SERVICE: "tinker-service"}
"""What such a process calls itself; others say `tinker-atropos`."""

STARTED = "tests.forking"
"""The audit event of a start."""

READ_AT_IMPORT = (
    "AIOHTTP_", "HF_", "HUGGINGFACE_", "OMP_", "OPENAI_", "OPENBLAS_", "PYDANTIC_", "PYTHON", "TINKER_LOG",
    "TOKENIZERS_", "TRANSFORMERS_", "USE_",
)  # fmt: skip
"""Beginnings of variables that count when the interpreter starts or a library is imported."""

PRELOADED, PRELOADED_TORCH, PRELOADED_RLCTL = "tests.preloaded", "tests.preloaded_torch", "tests.preloaded_rlctl"
SERVER_ENV_VARS = {
    "PYTHONPATH": str(ROOT),
    "OPENBLAS_NUM_THREADS": "1",  # no thread may run beside the one that forks
}
SERVER_PID = os.getpid()  # in the fork server, and in its children, which have this module from it
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Program:
    """What a child runs. The fork server unpickles it there, and calls `_bootstrap` as it would a Process's."""

    code: str
    argv: tuple[str, ...]
    env_vars: dict[str, str]
    folder: str

    def _bootstrap(self, parent_sentinel: int) -> None:
        os.close(parent_sentinel)
        self._become_new()
        python = ctypes.pythonapi
        failed = python.PyRun_SimpleString(self.code.encode())  # sys.exit and uncaught errors: as `python -c` has them
        python.Py_Exit(1 if failed else 0)  # waits for threads, runs atexit, ends the interpreter and the process

    def _become_new(self) -> None:
        _end_with_the_server()
        for standard, descriptor in enumerate(fork_server.get_inherited_fds() or ()):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 -- the process's own, while it lives
        sys.stdout.reconfigure(line_buffering=False)  # type: ignore[union-attr]  # the server's may be a terminal
        os.environ.clear()
        os.environ.update(self.env_vars)
        os.chdir(self.folder)
        sys.dont_write_bytecode = bool(self.env_vars.get("PYTHONDONTWRITEBYTECODE"))
        sys.argv = list(self.argv)
        sys.path[:] = [entry for entry in sys.path if entry not in ("", str(ROOT))]
        sys.modules["__main__"] = ModuleType("__main__")
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed()  # Python seeds its own after a fork
        _forget_the_server()


def _end_with_the_server() -> None:
    """Which ends with pytest: it reads a pipe, whose other end only pytest has then."""
    server: Any = fork_server._forkserver
    os.close(server._forkserver_alive_fd)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != SERVER_PID:
        os.kill(os.getpid(), signal.SIGKILL)


def _forget_the_server() -> None:
    """What the program starts through multiprocessing is its own."""
    tracker: Any = resource_tracker._resource_tracker
    server: Any = fork_server._forkserver
    os.close(tracker._fd)
    for known in (tracker, server):
        known.__init__()


@cache
def _server(preloaded: str) -> fork_server.ForkServer:
    """Started with the variables that its imports need; its children get their own."""
    server = fork_server.ForkServer()
    server.set_forkserver_preload(["tests.forking", preloaded])
    with patch.dict(os.environ, SERVER_ENV_VARS):
        server.ensure_running()
    return server


def server_pid(preloaded: str = PRELOADED) -> int:
    server: Any = _server(preloaded)
    pid: int = server._forkserver_pid
    return pid


def _preloaded(argv: Sequence[str]) -> str:
    match argv:
        case "rlctl", *_:
            return PRELOADED_RLCTL
        case "tinker-service", *_:
            return PRELOADED_TORCH
    return PRELOADED


class _Forked:
    """A child of the fork server: what subprocess.Popen and asyncio's Process have in common."""

    def __init__(
        self,
        arguments: Sequence[str | Path],
        env_vars: Mapping[str, str],
        streams: tuple[int, int, int],
        folder: Path | None = None,
        code: str = PROGRAM,
    ) -> None:
        """`streams` are the descriptors of stdin, stdout and stderr."""
        sys.audit(STARTED, arguments)  # as Popen does: the start may be undeclared (tests/plugins/programs.py)
        _refuse_what_is_read_at_import(env_vars)
        argv = (NAMES.get(code, "tinker-atropos"), *map(str, arguments))
        server = _server(_preloaded(argv))
        self._ended, request = server.connect_to_new_process(streams)
        with open(request, "wb") as child:  # noqa: PTH123 -- a descriptor
            pickle.dump({}, child)  # nothing of pytest's is the child's
            pickle.dump(Program(code, argv, dict(env_vars), str(folder or Path.cwd())), child)
        self.pid: int = fork_server.read_signed(self._ended)
        self._returncode: int | None = None

    @property
    def returncode(self) -> int | None:
        """Minus the number of the signal that ended it; None while it runs."""
        return self._returncode_within(0)

    def _returncode_within(self, seconds: float | None) -> int | None:
        if self._returncode is None:
            poll = select.poll()
            poll.register(self._ended, select.POLLIN)
            if poll.poll(None if seconds is None else 1000 * seconds):
                self._returncode = fork_server.read_signed(self._ended)
                os.close(self._ended)
        return self._returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedProcess(_Forked):
    """With asyncio's way to wait."""

    async def wait(self) -> int:
        if self.returncode is None:
            ended, event, loop = os.dup(self._ended), asyncio.Event(), asyncio.get_running_loop()
            loop.add_reader(ended, event.set)
            try:
                await event.wait()
            finally:
                loop.remove_reader(ended)
                os.close(ended)
        code = self.returncode
        assert code is not None
        return code


class ForkedPopen(_Forked):
    """With subprocess's ways to wait."""

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        code = self._returncode_within(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("tinker-atropos", timeout)
        return code


def start(
    arguments: Sequence[str | Path], env_vars: Mapping[str, str], log: Path, folder: Path | None = None
) -> ForkedProcess:
    """Start `tinker-atropos` with all its output in a file."""
    with log.open("wb") as output, Path(os.devnull).open("rb") as nothing:
        return ForkedProcess(arguments, env_vars, (nothing.fileno(), output.fileno(), output.fileno()), folder)


def run(
    arguments: Sequence[str | Path],
    env_vars: Mapping[str, str],
    folder: Path | None = None,
    *,
    stdin: str = "",
    code: str = PROGRAM,
    timeout: float = 100.0,
) -> subprocess.CompletedProcess[str]:
    """Run `tinker-atropos`, `rlctl` (`code=RLCTL`), or other Python code, to its end."""
    with ExitStack() as files:
        given, said, complained = (files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3))
        given.write(stdin)
        given.seek(0)
        process = ForkedPopen(arguments, env_vars, (given.fileno(), said.fileno(), complained.fileno()), folder, code)
        files.callback(process.kill)
        ended = process.wait(timeout)
        for output in (said, complained):
            output.seek(0)
        return subprocess.CompletedProcess(("tinker-atropos", *arguments), ended, said.read(), complained.read())


def _refuse_what_is_read_at_import(env_vars: Mapping[str, str]) -> None:
    for name, value in env_vars.items():
        if name.startswith(READ_AT_IMPORT) and os.environ.get(name) != value:
            raise ValueError(f"{name} is read before a fork would have it: this needs a real start")
