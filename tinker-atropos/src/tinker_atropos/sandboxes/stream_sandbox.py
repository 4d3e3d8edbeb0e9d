"""A sandbox whose tool server is on the other end of a stream."""

import base64
import contextlib
import json
import queue
import socket
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from tinker_atropos.sandboxes.sandbox import Command, CommandResult, Match, SandboxError, SandboxLostError
from tinker_atropos.sandboxes.sandbox_server.server import LAST_LINE, MAX_REQUEST_BYTES

ANSWER_SECONDS: Final = 30
"""How long a server may take for what takes no time, on top of a command's own."""

SEARCH_SECONDS = 15.0
"""How long a search in files may take."""

LAST_LINE_SECONDS: Final = 1.0
LOST: Final = "the sandbox is gone"


class StreamSandbox:
    """`is_lost` once its stream has ended, which ends everything in it; then `when_lost` is called, in any thread."""

    def __init__(self, stream: socket.socket, when_lost: Callable[[], object] = lambda: None) -> None:
        """Raises RuntimeError if there can be no more threads."""
        self._stream, self._when_lost = stream, when_lost
        self._waiting: dict[int, queue.SimpleQueue[dict[str, object]]] = {}
        self._sending = threading.Lock()
        self._last_id = LAST_LINE
        self._lost = LOST
        self.is_lost = False
        self._receiver = threading.Thread(target=self._receive, name="sandbox answers", daemon=True)
        self._receiver.start()

    def run(self, command: Command) -> CommandResult:
        answer = self._ask("run", command.timeout, **asdict(command))
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

    def _ask(self, method: str, seconds: float = 0.0, /, **fields: Any) -> Any:
        answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        with self._sending:
            if self.is_lost:
                raise SandboxLostError(self._lost)
            self._last_id += 1
            number = self._last_id
            line = _line({"id": number, "method": method, **fields})
            self._waiting[number] = answers
            try:
                self._stream.sendall(line)
            except OSError:  # closed; or it does not read, and nothing can follow half of a request
                self.is_lost = True
        if self.is_lost:
            self.close()
            self._receiver.join(LAST_LINE_SECONDS)  # it may still have to read why
            raise SandboxLostError(self._lost)
        return self._answer(number, answers, min(seconds + ANSWER_SECONDS, threading.TIMEOUT_MAX))

    def _answer(self, number: int, answers: "queue.SimpleQueue[dict[str, Any]]", seconds: float) -> object:
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
                while (line := lines.readline(MAX_REQUEST_BYTES)).endswith(b"\n"):
                    self._received(json.loads(line))
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            pass  # it was killed, perhaps in the middle of an answer, or is not what it was
        finally:
            with self._sending:
                self.is_lost = True
                for waiting in list(self._waiting.values()):
                    waiting.put({"error": self._lost, "lost": True})
            self._stream.close()
            self._when_lost()

    def _received(self, answer: dict[str, Any]) -> None:
        if answer["id"] == LAST_LINE:
            self._lost = f"{LOST}: {answer['error']}"
        elif waiting := self._waiting.get(answer["id"]):
            waiting.put(answer)


def _line(request: dict[str, object]) -> bytes:
    """Raises SandboxError for one that no server would read."""
    line = json.dumps(request).encode() + b"\n"
    if len(line) > MAX_REQUEST_BYTES:
        most = MAX_REQUEST_BYTES // 2**20
        raise SandboxError(f"this is too much at once: {len(line) // 2**20} MiB as it is sent, of at most {most} MiB")
    return line
