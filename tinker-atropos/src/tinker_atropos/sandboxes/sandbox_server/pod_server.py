"""The server of a sandbox that is a pod: the first process of its container.

It waits, warm, until its run leases it over TCP. The end of that connection is the end of everything here, and of this
process: the operator replaces the pod. The kernel keeps the first process from signals that are sent inside, so that,
unlike on a machine that others use too (`local_server.py`), one process is enough. Sources: pid_namespaces(7),
sigwaitinfo(2), rt_sigqueueinfo(2).
"""

import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any, NoReturn

from tinker_atropos.sandboxes.sandbox_server import walls
from tinker_atropos.sandboxes.sandbox_server.lease_port import LeasePort, prepare
from tinker_atropos.sandboxes.sandbox_server.process_tree import kill_all
from tinker_atropos.sandboxes.sandbox_server.process_watch import ProcessWatch, limit_resources
from tinker_atropos.sandboxes.sandbox_server.server import THREAD_STACK_BYTES, SandboxServer

IDLE_SECONDS = 1.0
FAILED, STOPPED = "its server failed", "its pod was stopped"
CLUSTER_VARIABLES = "KUBERNETES_"
"""What Kubernetes sets in every container."""

SI_USER = 0
"""Of signals that kill(2) sent. Whoever sends one in another way can say what it likes of itself, but not this."""

Settings = dict[str, Any]


def main() -> None:
    """One argument, a JSON object: `port` to listen on, or `listen_fd`, a socket that listens already; `owner`, the uid
    of the run; `folder`; the limits `memory_mb`, `disk_mb` and `processes`; and `seconds`, how long a sandbox may be
    used.

    Exit code 0, unless something failed.
    """
    settings = json.loads(sys.argv[1])
    PodServer(settings, _listening(settings)).serve()


class PodServer:
    """`listening` stays open as long as this process lives: no command can listen there and pose as a fresh sandbox."""

    def __init__(self, settings: Settings, listening: socket.socket) -> None:
        self._settings, self._listening = settings, listening
        self._watch = ProcessWatch(settings["memory_mb"], settings["processes"], IDLE_SECONDS)
        self._walls: list[str] = []
        self._server: SandboxServer | None = None
        self._is_used = threading.Event()
        self._is_first = os.getpid() == 1

    def serve(self) -> NoReturn:
        """Raises OSError if it cannot begin."""
        settings = self._settings
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if not self._is_first:
            signal.signal(signal.SIGTERM, lambda *_: self._end(STOPPED))
        self._walls = walls.raise_plain_walls()
        walls.keep_from_inspection()
        os.makedirs(settings["folder"], mode=0o700, exist_ok=True)
        os.chdir(settings["folder"])
        limit_resources(settings["memory_mb"], settings["disk_mb"], settings["processes"], has_namespaces=False)
        threading.stack_size(THREAD_STACK_BYTES)
        threading.excepthook = self._thread_failed
        self._watch.begin()
        for work in (self._listen, self._end_in_time):
            threading.Thread(target=work, daemon=True).start()
        self._end_when_stopped()

    def _listen(self) -> NoReturn:
        listener = LeasePort(self._listening, self._settings["owner"], self._begin)
        while True:
            listener.look()

    def _begin(self, stream: socket.socket, number: object) -> None:
        """Serve the lease. `number` is the id of the request for it."""
        prepare(stream)
        folder, seconds = self._settings["folder"], self._settings["seconds"]
        server = SandboxServer(stream, folder, self._watch, self._walls, _env_vars(), at_work=self._is_used.set)
        self._server = server
        server.send({"id": number, "result": {"walls": self._walls, "folder": folder, "seconds": seconds}})
        threading.Thread(target=self._serve_lease, args=(server,), name="lease", daemon=True).start()

    def _serve_lease(self, server: SandboxServer) -> None:
        try:
            server.serve()
        except (OSError, ValueError):  # the connection was lost, perhaps in the middle of a line
            pass
        self._end("its connection has ended")

    def _end_in_time(self) -> None:
        """The time begins with the first thing that is done here: before that, a sandbox may wait for days."""
        self._is_used.wait()
        time.sleep(self._settings["seconds"])
        self._end(f"its time of {self._settings['seconds']:g} s is over")

    def _end_when_stopped(self) -> NoReturn:
        """By SIGTERM from outside. The kernel drops the signals that are sent to a first process inside, but only those
        that it does not wait for; of this one it says who sent it, and 0 is nobody here. A process that is not the
        first, as in a pod with an init of its own, has no such protection, and ends by whoever sends it.

        In the main thread, which the kernel prefers, and the only one that blocks the signal: commands inherit from the
        others what is blocked.
        """
        while not self._is_first:
            time.sleep(IDLE_SECONDS)  # not pause: a signal that comes just before it would not end it
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        while True:
            sent = signal.sigwaitinfo({signal.SIGTERM})
            if sent.si_pid == 0 and sent.si_code == SI_USER:
                self._end(STOPPED)

    def _thread_failed(self, failure: threading.ExceptHookArgs) -> None:
        """Whichever it was, without it the sandbox has no limits, or leaves somebody without an answer."""
        traceback.print_exception(failure.exc_type, failure.exc_value, failure.exc_traceback)
        self._end(FAILED, exit_code=1)

    def _end(self, why: str, exit_code: int = 0) -> NoReturn:
        os.write(2, f"The sandbox ends: {why}.\n".encode())
        if self._server is not None:
            self._server.send_last(why)
        self._watch.close()
        kill_all()
        os._exit(exit_code)


def _listening(settings: Settings) -> socket.socket:
    """Raises OSError."""
    if "listen_fd" in settings:
        inherited = socket.socket(fileno=settings["listen_fd"])
        inherited.set_inheritable(False)
        return inherited
    address = ("", settings["port"])
    if socket.has_dualstack_ipv6():
        return socket.create_server(address, family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(address)


def _env_vars() -> dict[str, str]:
    """Variables of commands: the image's, whose programs come before the interpreter that was brought along for the
    server. Where the API server is they need not know.
    """
    images = {name: value for name, value in os.environ.items() if not name.startswith(CLUSTER_VARIABLES)}
    path = os.pathsep.join([images.get("PATH", os.defpath), os.path.dirname(sys.executable)])
    return {**images, "PATH": path}
