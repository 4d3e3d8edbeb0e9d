"""The server: one stream, a line of JSON for each request and each answer, several at once.

A request is {"id", "method", …}; its answer {"id", "result"} or {"id", "error"}. When the stream is closed, whoever
held its other end is gone: everything in the sandbox is ended.
"""

import base64
import json
import os
import resource
import signal
import socket
import sys
import threading
from typing import Any, NoReturn

from tinker_atropos.sandboxes.sandbox_server import walls
from tinker_atropos.sandboxes.sandbox_server.command_run import run_command
from tinker_atropos.sandboxes.sandbox_server.process_tree import kill_all, threads_of_user
from tinker_atropos.sandboxes.sandbox_server.process_watch import THREADS_FOR_A_PROCESS, ProcessWatch
from tinker_atropos.sandboxes.sandbox_server.sandbox_files import RefusedError, read_file, remove_folder, write_file

THREAD_STACK_BYTES = 512 * 1024
SEARCH_BYTES = 2**24
SERVER_THREADS = 256
ROOM_FOR_OTHERS = 4096

Request = dict[str, Any]


class SandboxServer:
    """Serves one stream. `stand` are the names of its walls."""

    def __init__(self, stream: socket.socket, folder: str, watch: ProcessWatch, stand: list[str]) -> None:
        self._stream, self._folder, self._watch, self._stand = stream, folder, watch, stand
        self._sending = threading.Lock()
        search_path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
        self._env_vars = {"PATH": search_path, "HOME": folder, "TMPDIR": folder, "USER": "agent", "LANG": "C.UTF-8"}

    def serve(self) -> None:
        threading.Thread(target=self._watch.watch, daemon=True).start()
        with self._stream.makefile("rb") as lines:
            for line in lines:
                threading.Thread(target=self._answer, args=(json.loads(line),), daemon=True).start()

    def _answer(self, request: Request) -> None:
        try:
            answer = {"id": request["id"], "result": self._result(request)}
        except Exception as error:  # whatever it is, somebody waits for an answer
            answer = {"id": request["id"], "error": str(error) or type(error).__name__}
        line = json.dumps(answer).encode() + b"\n"
        try:
            with self._sending:
                self._stream.sendall(line)
        except OSError:  # the client is gone, and `serve` is about to return
            return

    def _result(self, request: Request) -> Any:
        match request["method"]:
            case "walls":
                return self._stand
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


def main() -> None:
    """Arguments: the stream's file descriptor, the folder, and the limits as JSON. Two processes: the outer one waits
    for the other, and removes the folder.
    """
    descriptor, folder, limits = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    walls.be_first_to_go()
    has_namespaces = not limits["plain"] and walls.in_own_user_and_pids()
    walls.adopt_orphans()
    walls.keep_from_inspection()
    child = os.fork()
    if child == 0:
        serve_one(descriptor, folder, limits, has_namespaces=has_namespaces)
    os.close(descriptor)
    os.waitpid(child, 0)
    kill_all()  # the kernel has done so, where there is a pid namespace
    remove_folder(folder)


def serve_one(descriptor: int, folder: str, limits: Request, *, has_namespaces: bool) -> NoReturn:
    """In the inner process, until the stream is closed or the outer process ends."""
    if has_namespaces:
        walls.die_with_parent()
        stand = walls.raise_walls(folder, limits["disk_mb"], is_networked=limits["network"])
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        walls.die_with_parent(signal.SIGTERM)
        stand = walls.raise_plain_walls()
    walls.keep_from_inspection()
    os.chdir(folder)
    _limit(limits, has_namespaces=has_namespaces)
    threading.stack_size(THREAD_STACK_BYTES)
    watch = ProcessWatch(limits["memory_mb"], limits["processes"])
    try:
        SandboxServer(socket.socket(fileno=descriptor), folder, watch, stand).serve()
    finally:
        kill_all()
        if not has_namespaces:  # the outer process may be gone
            remove_folder(folder)
        os._exit(0)


def _limit(limits: Request, *, has_namespaces: bool) -> None:
    """What this process and all commands may use, each.

    RLIMIT_DATA, not RLIMIT_AS: runtimes such as node and Go reserve far more address space than they ever write to.
    """
    sizes = {
        resource.RLIMIT_DATA: limits["memory_mb"] * 2**20,
        resource.RLIMIT_FSIZE: limits["disk_mb"] * 2**20,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 1024,
    }
    own_threads = limits["processes"] * THREADS_FOR_A_PROCESS + SERVER_THREADS
    # Without a user namespace all programs of this user count, later sandboxes too; for root there is no such limit.
    sizes[resource.RLIMIT_NPROC] = own_threads if has_namespaces else own_threads + threads_of_user() + ROOM_FOR_OTHERS
    for kind, size in sizes.items():
        _, most = resource.getrlimit(kind)
        bound = size if most == resource.RLIM_INFINITY else min(size, most)
        resource.setrlimit(kind, (bound, bound))
