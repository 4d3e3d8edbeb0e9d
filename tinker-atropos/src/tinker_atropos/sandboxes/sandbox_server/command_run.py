"""One command: started, read until it ends or its time is over, and ended with all that it started."""

import os
import select
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from tinker_atropos.sandboxes.sandbox_server.process_tree import MARK, kill_command
from tinker_atropos.sandboxes.sandbox_server.process_watch import ProcessWatch

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
    arguments = [_shell(), "-c", program] if isinstance(program, str) else program
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


def _watched(process: "subprocess.Popen[bytes]", output: Any, kept: KeptOutput, deadline: float) -> int | None:
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


def _shell() -> str:
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
