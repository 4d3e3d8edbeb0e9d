"""The server: one stream, a line of JSON for each request and each answer, several at once.

A request is {"id", "method", …}; its answer {"id", "result"} or {"id", "error"}. A line {"id": 0, "error"} answers no
request: it is the last one, and says why the sandbox ends. When the stream is closed, whoever held its other end is
gone: everything in the sandbox is ended, by `local_server.py` or `pod_server.py`.

A command is started, read until it ends or its time is over, and ended with all that it started.
"""

import base64
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tinker_atropos.sandboxes.sandbox_server.process_tree import MARK, kill_command
from tinker_atropos.sandboxes.sandbox_server.process_watch import ProcessWatch
from tinker_atropos.sandboxes.sandbox_server.sandbox_files import SandboxRequestError, read_file, write_file

CHUNK = 65536
LOOK_SECONDS = 0.02
"""How long it takes at most until the end of a command is seen whose descendants hold its output open."""

LAST_WORDS_SECONDS = 0.2
"""How long output is waited for that a command's descendants still hold back when it has ended."""

TIMED_OUT, KILLED = 124, 128
"""Exit codes, as those of timeout(1) and of shells (to which the signal's number is added)."""


class KeptOutput:
    """The first and the last half of what was written, at most `limit` bytes of it."""

    def __init__(self, limit: int) -> None:
        self._half = max(0, limit // 2)
        self._head, self._tail, self.dropped = bytearray(), bytearray(), 0

    def add(self, written: bytes) -> None:
        room = self._half - len(self._head)
        self._head += written[:room]
        self._tail += written[room:]
        excess = len(self._tail) - self._half
        if excess > 0:
            del self._tail[:excess]
            self.dropped += excess

    def text(self) -> str:
        if not self.dropped:
            return (self._head + self._tail).decode(errors="replace")
        gap = f"\n[{self.dropped} bytes are left out]\n"
        return self._head.decode(errors="replace") + gap + self._tail.decode(errors="replace")


def run_command(request: Mapping[str, Any], folder: str, env_vars: Mapping[str, str], watch: ProcessWatch) -> Any:
    """Raises OSError and ValueError if it cannot be started."""
    mark = os.urandom(16).hex()
    kept, deadline = KeptOutput(request["max_output"]), time.monotonic() + request["timeout"]
    process, output = _started(request, folder, {**env_vars, **request["env_vars"], MARK: mark}, watch)
    with os.fdopen(output, "rb", buffering=0) as stream:
        try:
            exit_code = _watched(process, stream, kept, deadline)
        finally:
            if process.poll() is None:
                kill_command(process.pid, mark)
                process.wait()
            excess = watch.forget(process)
        _read(stream, kept, time.monotonic() + LAST_WORDS_SECONDS)
    if excess:
        kept.add(f"\n[everything in the sandbox was killed: {excess}]\n".encode())
    code = TIMED_OUT if exit_code is None else exit_code if exit_code >= 0 else KILLED - exit_code
    return {"exit_code": code, "output": kept.text(), "timed_out": exit_code is None, "dropped": kept.dropped}


def _started(
    request: Mapping[str, Any], folder: str, env_vars: Mapping[str, str], watch: ProcessWatch
) -> "tuple[subprocess.Popen[bytes], int]":
    """The process, and the end of a pipe that has its output."""
    program = request["program"]
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    arguments = [shell, "-c", program] if isinstance(program, str) else program
    if not arguments:
        raise ValueError("there is no program to run")
    stdin = _stdin(request["stdin"])
    output, write_end = os.pipe()
    try:
        process = watch.start(
            arguments, stdin=stdin, stdout=write_end, stderr=subprocess.STDOUT, start_new_session=True,
            cwd=os.path.join(folder, request["folder"] or ""), env=env_vars,
        )  # fmt: skip
    except BaseException:
        os.close(output)
        raise
    finally:
        os.close(write_end)
        os.close(stdin)
    return process, output


def _stdin(text: str) -> int:
    """A file, not a pipe: nobody has to write while the command runs. Not in the folder, which may be full."""
    if not text or not hasattr(os, "memfd_create"):
        return _piped(text.encode()) if text else os.open(os.devnull, os.O_RDONLY)
    written, number = text.encode(), os.memfd_create("stdin")
    with os.fdopen(number, "wb", closefd=False) as file:
        file.write(written)
    os.lseek(number, 0, os.SEEK_SET)
    return number


def _piped(written: bytes) -> int:
    """Where there is no memory file (macOS)."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(written)
        file.seek(0)
        return os.dup(file.fileno())


def _watched(process: "subprocess.Popen[bytes]", output: object, kept: KeptOutput, deadline: float) -> int | None:
    """Its exit code; None when its time is over."""
    while time.monotonic() < deadline:
        is_open = _read(output, kept, min(deadline, time.monotonic() + LOOK_SECONDS))
        try:
            return process.wait(0 if is_open else max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            continue
    return process.poll()


def _read(output: Any, kept: KeptOutput, until: float) -> bool:
    """What is written until then; False once nobody can write any more."""
    while (left := until - time.monotonic()) > 0:
        if not select.select([output], [], [], left)[0]:
            return True
        written = output.read(CHUNK)
        if not written:
            return False
        kept.add(written)
    return True


THREAD_STACK_BYTES = 512 * 1024
SEARCH_BYTES = 2**24
MAX_REQUEST_BYTES = 2**27
"""Of one line: while it is parsed and its content is written, there are four of them in memory."""

LAST_LINE = 0
LAST_LINE_SECONDS = 1.0
"""How long the last line waits for an answer that is being sent."""

Request = dict[str, Any]


class SandboxServer:
    """Serves one stream. `stand` are the names of its walls; `env_vars`, with PATH, are what commands have besides the
    variables of their folder. `at_work` is called before each request that does something in the sandbox.
    """

    def __init__(
        self,
        stream: socket.socket,
        folder: str,
        watch: ProcessWatch,
        stand: list[str],
        env_vars: Mapping[str, str],
        *,
        at_work: Callable[[], object] = lambda: None,
    ) -> None:
        self._stream, self._folder, self._watch, self._stand = stream, folder, watch, stand
        self._at_work = at_work
        self._sending = threading.Lock()
        self._env_vars = {"LANG": "C.UTF-8", **env_vars, "HOME": folder, "TMPDIR": folder, "USER": "agent"}

    def serve(self) -> None:
        """Until the stream ends, or a line is too long to be a request. Raises OSError, and ValueError for what is no
        JSON.
        """
        with self._stream.makefile("rb") as lines:
            while (line := lines.readline(MAX_REQUEST_BYTES)).endswith(b"\n"):
                threading.Thread(target=self._answer, args=(json.loads(line),), daemon=True).start()

    def send(self, answer: Request) -> None:
        """A client that does not read has lost the stream: half a line is nothing to go on with."""
        line = json.dumps(answer).encode() + b"\n"
        try:
            with self._sending:
                self._stream.sendall(line)
        except OSError:
            self._hang_up()

    def send_last(self, why: str) -> None:
        """Nothing follows it. Neither a client that does not read nor one that is gone holds it up."""
        if not self._sending.acquire(timeout=LAST_LINE_SECONDS):
            return
        try:
            self._stream.send(json.dumps({"id": LAST_LINE, "error": why}).encode() + b"\n", socket.MSG_DONTWAIT)
        except OSError:
            return

    def _hang_up(self) -> None:
        """`serve` returns."""
        try:
            self._stream.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def _answer(self, request: Request) -> None:
        try:
            answer = {"id": request["id"], "result": self._result(request)}
        except Exception as error:  # whatever it is, somebody waits for an answer
            answer = {"id": request["id"], "error": str(error) or type(error).__name__}
        if not self._watch.is_closed:  # else the end of the stream is the answer: the sandbox is lost
            self.send(answer)

    def _result(self, request: Request) -> Any:
        if request["method"] == "walls":
            return self._stand
        self._at_work()
        match request["method"]:
            case "run":
                return run_command(request, self._folder, self._env_vars, self._watch)
            case "read_file":
                return base64.b64encode(read_file(self._folder, request["path"], request["max_bytes"])).decode()
            case "write_file":
                return write_file(self._folder, request["path"], base64.b64decode(request["content"]))
            case "find_text" | "find_files":
                return self._found(request)
        raise SandboxRequestError(f"there is no method {request['method']!r}")

    def _found(self, request: Request) -> Any:
        call = f"import sys; sys.path += {sys.path!r}; from {__package__}.file_search import main; main()"
        command = {
            "program": [sys.executable, "-I", "-S", "-B", "-W", "ignore", "-c", call],
            "stdin": json.dumps({**request, "folder": self._folder}),
            "timeout": request["seconds"],
            "env_vars": {},
            "folder": "/",
            "max_output": SEARCH_BYTES,
        }
        ended = run_command(command, self._folder, self._env_vars, self._watch)
        if ended["timed_out"]:
            raise SandboxRequestError(
                f"the search took more than {request['seconds']:g} s: look for less, or in fewer files"
            )
        if ended["exit_code"] or ended["dropped"]:
            raise SandboxRequestError(f"the search failed: {ended['output'][-500:]}")
        answer = json.loads(ended["output"])
        if "error" in answer:
            raise SandboxRequestError(answer["error"])
        return answer["result"]
