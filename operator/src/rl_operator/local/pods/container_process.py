"""One container as a process group: its log, its signals, its end."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rl_operator.api.kubernetes_objects import ContainerStateObject
from rl_operator.local.pods.pod_status import terminated
from rl_operator.local.programs.launch import Launch
from rl_operator.local.programs.leash import end_left_over
from rl_operator.local.state.locks import FileLock

LOG_BYTES = 10 * 1024 * 1024
"""A log is rotated at this size and one older part is kept, as a kubelet does."""

MESSAGE_BYTES = 4096
MESSAGE_FROM_LOG_BYTES, MESSAGE_FROM_LOG_LINES = 2048, 80
"""Kubernetes' bounds of a termination message."""

KILL_DEADLINE_SECONDS = 5.0


class ContainerProcess:
    """A running container. Its process leads its own group, so that all of it can be ended."""

    def __init__(
        self,
        launch: Launch,
        process: asyncio.subprocess.Process,
        output: asyncio.StreamReader,
        group_ended: Callable[[int], None],
    ) -> None:
        self._launch = launch
        self._process = process
        self._last_words = bytearray()
        self._pump = asyncio.create_task(self._copy_output(output), name=f"log of {launch.name}")
        self._group_ended = group_ended
        self.started = datetime.now(UTC)

    @classmethod
    async def start(
        cls, launch: Launch, group_started: Callable[[int], None], group_ended: Callable[[int], None]
    ) -> "ContainerProcess":
        """Raises OSError if the program cannot be executed."""
        path = launch.folder.lock(launch.name)
        end_left_over(path)
        lock = FileLock(path)
        lock.take()
        # Our own pipe: asyncio's would make `wait` wait for every process that inherited it.
        reading, writing = os.pipe()
        output = await _reader(reading)
        try:
            process = await asyncio.create_subprocess_exec(
                *launch.argv,
                cwd=launch.folder.working_folder(launch.name),
                env=dict(launch.env_vars),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                start_new_session=True,
                pass_fds=(lock.descriptor,),
            )
            lock.sign(process.pid)
        finally:
            os.close(writing)
            lock.give_back()  # our copy; the process keeps its own
        group_started(process.pid)
        return cls(launch, process, output, group_ended)

    async def wait(self) -> ContainerStateObject:
        """Wait until the process has ended, its log is on disk and no process of its group is left."""
        returncode = await self._process.wait()
        self._signal(signal.SIGKILL)  # processes that it left behind die with it, as in a container
        self._group_ended(self._process.pid)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._pump, KILL_DEADLINE_SECONDS)
        exit_code = returncode if returncode >= 0 else 128 - returncode
        message = self._termination_message(failed=bool(exit_code))
        return terminated(exit_code, "Error" if exit_code else "Completed", message, self.started)

    def terminate(self) -> None:
        """Ask the main process to end, as a kubelet does."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _termination_message(self, *, failed: bool) -> str:
        """What the container wrote to its message file; if it failed without a message, the end of its output."""
        message = _read_end(self._launch.folder.termination_message(self._launch.name), MESSAGE_BYTES)
        if message or not (failed and self._launch.falls_back_to_logs):
            return message
        lines = bytes(self._last_words).decode("utf-8", "replace").splitlines(keepends=True)
        return "".join(lines[-MESSAGE_FROM_LOG_LINES:])

    async def _copy_output(self, output: asyncio.StreamReader) -> None:
        """Append to the log. A full disk costs log lines, never the container, and not its termination message."""
        while chunk := await output.read(65536):
            self._last_words += chunk
            del self._last_words[:-MESSAGE_FROM_LOG_BYTES]
            with contextlib.suppress(OSError):
                _append(self._launch.folder.log(self._launch.name), chunk)


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb"))
    return reader


def _append(path: Path, chunk: bytes) -> None:
    if path.exists() and path.stat().st_size + len(chunk) > LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    with path.open("ab") as log:
        log.write(chunk)


def _read_end(path: Path, size: int) -> str:
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - size))
            return file.read(size).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
