"""A sandbox on this machine: a tool server in a process of its own, on the other end of a socket."""

import base64
import contextlib
import json
import os
import queue
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tinker_atropos.sandboxes.sandbox import (
    Command,
    CommandResult,
    Match,
    SandboxError,
    SandboxLimits,
    SandboxLostError,
)
from tinker_atropos.sandboxes.sandbox_server.sandbox_files import remove_folder
from tinker_atropos.sandboxes.sandbox_server.walls import NO_NETWORK, PROCESSES, keep_from_inspection

ROOT: Final = str(Path(__file__).parents[2])
START: Final = (
    f"import sys; sys.path.append({ROOT!r}); from tinker_atropos.sandboxes.sandbox_server.server import main; main()"
)
ANSWER_SECONDS: Final = 30
"""How long a server may take for what takes no time, on top of a command's own."""

SEARCH_SECONDS = 15.0
"""How long a search in files may take."""

END_SECONDS: Final = 10
"""How long a server may take to end everything before it is killed."""

LOST: Final = "the sandbox is gone"
NOT_ISOLATED: Final = (
    "no sandbox is started: this machine allows no namespaces, as most pods, and an agent's commands could reach the "
    "trainer; use toolsets without a sandbox (enabled_toolsets: []), or local mode on a kernel that allows them"
)


class LocalSandbox:
    """`walls` names those that stand around it; where namespaces are not allowed there are hardly any.

    Without them, this process keeps its memory and environment from other programs of its user, for good: a command
    could read its keys.
    """

    def __init__(self, limits: SandboxLimits, *, plain: bool = False) -> None:
        """`plain`: do not use namespaces. Raises SandboxLostError if it does not start."""
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._sending = threading.Lock()
        self._last_id = 0
        self.is_lost = False
        try:
            self.folder = tempfile.mkdtemp(prefix="rl-sandbox-")
            self._stream, self._process = _started(limits, self.folder, plain=plain)
            threading.Thread(target=self._receive, name="sandbox answers", daemon=True).start()
        except (OSError, RuntimeError) as error:  # no more files, processes or threads
            raise SandboxLostError(f"no sandbox can be started: {error}") from error
        try:
            self.walls: Sequence[str] = self._ask("walls")
        except SandboxLostError:
            self.close()
            raise
        if PROCESSES not in self.walls:
            keep_from_inspection()
        if limits.must_isolate and NO_NETWORK not in self.walls:
            self.close()
            raise SandboxLostError(NOT_ISOLATED)

    def run(self, command: Command) -> CommandResult:
        program = command.program if isinstance(command.program, str) else list(command.program)
        answer = self._ask(
            "run",
            command.timeout,
            program=program,
            timeout=command.timeout,
            env_vars=dict(command.env_vars),
            stdin=command.stdin,
            folder=command.folder,
            max_output=command.max_output,
        )
        return CommandResult(answer["exit_code"], answer["output"], answer["timed_out"], answer["dropped"])

    def read_file(self, path: str, max_bytes: int) -> bytes:
        return base64.b64decode(self._ask("read_file", path=path, max_bytes=max_bytes))

    def write_file(self, path: str, content: bytes) -> None:
        self._ask("write_file", path=path, content=base64.b64encode(content).decode())

    def find_text(self, pattern: str, path: str, file_glob: str, limit: int) -> list[Match]:
        fields = {"pattern": pattern, "path": path, "file_glob": file_glob, "limit": limit, "seconds": SEARCH_SECONDS}
        return [Match(*each) for each in self._ask("find_text", SEARCH_SECONDS, **fields)]

    def find_files(self, file_glob: str, path: str, limit: int) -> list[str]:
        fields = {"path": path, "file_glob": file_glob, "limit": limit, "seconds": SEARCH_SECONDS}
        return list(self._ask("find_files", SEARCH_SECONDS, **fields))

    def close(self) -> None:
        """The server sees that the stream has ended, and takes everything with it."""
        with contextlib.suppress(OSError):  # it is closed already
            self._stream.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if Path(self.folder).exists():  # its processes were killed before they could remove it
            remove_folder(self.folder)

    def _ask(self, method: str, seconds: float = 0.0, /, **fields: Any) -> Any:
        answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        with self._sending:
            if self.is_lost:
                raise SandboxLostError(LOST)
            self._last_id += 1
            number = self._last_id
            self._waiting[number] = answers
            try:
                self._stream.sendall(json.dumps({"id": number, "method": method, **fields}).encode() + b"\n")
            except OSError:  # closed; or it does not read, and a part of a request is no stream to go on with
                self.is_lost = True
        if self.is_lost:
            self.close()
            raise SandboxLostError(LOST)
        return self._answer(number, answers, min(seconds + ANSWER_SECONDS, threading.TIMEOUT_MAX))

    def _answer(self, number: int, answers: "queue.SimpleQueue[dict[str, Any]]", seconds: float) -> Any:
        try:
            answer = answers.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise SandboxLostError(f"{LOST}: it did not answer for {seconds:g} s") from None
        finally:
            self._waiting.pop(number, None)
        if "result" in answer:
            return answer["result"]
        raise (SandboxLostError if answer.get("lost") else SandboxError)(answer["error"])

    def _receive(self) -> None:
        try:
            with self._stream.makefile("rb") as lines:
                for line in lines:
                    answer = json.loads(line)
                    if waiting := self._waiting.get(answer["id"]):
                        waiting.put(answer)
        except (OSError, ValueError):  # it was killed, perhaps in the middle of an answer
            pass
        finally:
            with self._sending:
                self.is_lost = True
                for waiting in list(self._waiting.values()):
                    waiting.put({"error": LOST, "lost": True})
            self._stream.close()


def _started(limits: SandboxLimits, folder: str, *, plain: bool) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Our end of its stream, and its outer process. Raises OSError, and removes the folder."""
    wanted = {
        "memory_mb": limits.memory_mb,
        "disk_mb": limits.disk_mb,
        "processes": limits.processes,
        "network": limits.network,
        "plain": plain,
    }
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", ANSWER_SECONDS, 0))
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603  # our own server
                [sys.executable, "-I", "-S", "-B", "-c", START, str(theirs.fileno()), folder, json.dumps(wanted)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={name: os.environ[name] for name in ("PATH",) if name in os.environ},
            )
        except OSError:
            ours.close()
            remove_folder(folder)
            raise
    return ours, process
