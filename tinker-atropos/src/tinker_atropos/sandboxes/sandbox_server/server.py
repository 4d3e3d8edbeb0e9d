"""The server: one stream, a line of JSON for each request and each answer, several at once.

A request is {"id", "method", …}; its answer {"id", "result"} or {"id", "error"}. A line {"id": 0, "error"} answers no
request: it is the last one, and says why the sandbox ends. When the stream is closed, whoever held its other end is
gone: everything in the sandbox is ended, by `local_server.py` or `pod_server.py`.
"""

import base64
import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from tinker_atropos.sandboxes.sandbox_server.command_run import run_command
from tinker_atropos.sandboxes.sandbox_server.process_watch import ProcessWatch
from tinker_atropos.sandboxes.sandbox_server.sandbox_files import RefusedError, read_file, write_file

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
        raise RefusedError(f"there is no method {request['method']!r}")

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
            raise RefusedError(f"the search took more than {request['seconds']:g} s: look for less, or in fewer files")
        if ended["exit_code"] or ended["dropped"]:
            raise RefusedError(f"the search failed: {ended['output'][-500:]}")
        answer = json.loads(ended["output"])
        if "error" in answer:
            raise RefusedError(answer["error"])
        return answer["result"]
