"""Sandboxes in pods, leased before they are needed. The operator replaces those that have ended.

A Service stands before all of a run's sandboxes and picks one by chance for each connection; one that is leased already
says so, and the next connection leads elsewhere. So nobody needs a list of addresses, which DNS would give half a
minute late.

A sandbox is the first process of its pod's container, which serves whoever leases it over TCP.
"""

import json
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from tinker_atropos.sandboxes.sandbox import Sandbox, SandboxError, SandboxLostError, always
from tinker_atropos.sandboxes.sandbox_server.lease_port import BUSY, prepare
from tinker_atropos.sandboxes.stream_sandbox import StreamSandbox

CONNECT_SECONDS: Final = 2.0
LEASE_ANSWER_SECONDS: Final = 5.0
"""How long a server may take to answer the request for its lease."""

MAX_ANSWER: Final = 65536
LEASE_ID: Final = 1


class SandboxBusyError(SandboxError):
    """Somebody else has the lease."""


class PodSandbox(StreamSandbox):
    """`walls` names those that stand inside of the pod, around each command; `folder` is the sandbox's own, and it ends
    `seconds` after its first use.
    """

    def __init__(
        self, stream: socket.socket, owner: str, when_lost: Callable[["PodSandbox"], object] = lambda _: None
    ) -> None:
        """Lease what a stream of `connected` leads to, for the run with the uid `owner`. Raises SandboxBusyError, or
        SandboxLostError if there is no sandbox of this run; then the stream is closed.
        """
        try:
            leased = _leased(stream, owner)
            self.walls: Sequence[str] = leased["walls"]
            self.folder, self.seconds = str(leased["folder"]), float(leased["seconds"])
            prepare(stream)
            super().__init__(stream, lambda: when_lost(self))
        except SandboxError:
            stream.close()
            raise
        except (
            OSError,
            RuntimeError,
            LookupError,
            TypeError,
            ValueError,
            OverflowError,
        ) as error:  # or another program is there
            stream.close()
            raise SandboxLostError(f"it cannot be leased: {error or type(error).__name__}") from error


class SandboxAddress:
    """The address of a name that is looked up once, and again after a connection has failed."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._found: str | None = None

    def connected(self) -> socket.socket:
        """Raises OSError."""
        if self._found is None:
            self._found = str(socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0][4][0])
        try:
            return connected(self._found, self._port)
        except ConnectionRefusedError:  # by the right one: nothing listens behind it yet
            raise
        except OSError:
            self._found = None
            raise


def connected(host: str, port: int) -> socket.socket:
    """A stream that has asked for nothing yet: closing it costs no sandbox. Raises OSError."""
    return socket.create_connection((host, port), CONNECT_SECONDS)


def _leased(stream: socket.socket, owner: str) -> dict[str, Any]:
    """What the server says of itself. Raises OSError, ValueError, LookupError, TypeError, and SandboxError."""
    stream.settimeout(LEASE_ANSWER_SECONDS)
    stream.sendall(json.dumps({"id": LEASE_ID, "method": "lease", "owner": owner}).encode() + b"\n")
    answer = json.loads(_first_line(stream))
    if "error" in answer:
        raise SandboxBusyError(BUSY) if answer["error"] == BUSY else SandboxLostError(str(answer["error"]))
    leased: dict[str, Any] = answer["result"]
    return leased


def _first_line(stream: socket.socket) -> bytes:
    """Nothing follows it: the server has been asked for nothing else."""
    received, deadline = b"", time.monotonic() + LEASE_ANSWER_SECONDS
    while not received.endswith(b"\n"):
        stream.settimeout(max(0.001, deadline - time.monotonic()))
        more = stream.recv(4096)
        if not more or len(received) > MAX_ANSWER:
            raise ConnectionError("the connection was closed instead of an answer")
        received += more
    return received


logger = logging.getLogger(__name__)

LEASE_SECONDS: Final = 600.0
"""How long a rollout waits for a sandbox."""

WANTED_SECONDS: Final = 0.5
"""How often one that waits is asked whether it still does."""

LOOK_SECONDS: Final = 0.5
LONGEST_LOOK_SECONDS: Final = 2.0
"""Before a look, while sandboxes are missing: it doubles with each that finds none. A pod takes as long to be replaced,
and each try is a connection to a sandbox at work.
"""

MOST_TRIES: Final = 16
"""Connections in one look: up to two more than the share, which find one that is free among as many in two of three
looks.
"""

WARN_SECONDS: Final = 60.0
CLOSED: Final = "the sandboxes are closed: the environment has ended"


class PodSandboxes:
    """At most `share` are held at once, leased to rollouts or waiting for one. They are behind `host` and `port`, and
    belong to the run with the uid `owner`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        owner: str,
        share: int,
        *,
        run_name: str = "NAME",
        lease_seconds: float = LEASE_SECONDS,
        connect: Callable[[], socket.socket] | None = None,
    ) -> None:
        """`run_name` is for messages; `connect` returns a connection to any of the sandboxes, or raises OSError."""
        self._host, self._owner, self._share = host, owner, share
        self._run_name, self._lease_seconds = run_name, lease_seconds
        self._connect = connect or SandboxAddress(host, port).connected
        self._waiting: deque[PodSandbox] = deque()
        self._held: set[PodSandbox] = set()
        self._changed = threading.Condition()
        self._wanted, self._closing = threading.Event(), threading.Event()
        self._is_closed = False
        self._last_error, self._next_warning = "", time.monotonic() + WARN_SECONDS
        threading.Thread(target=self._keep, name="sandbox leases", daemon=True).start()

    def lease(self, is_wanted: Callable[[], bool] = always) -> PodSandbox:
        deadline = time.monotonic() + self._lease_seconds
        with self._changed:
            while True:
                if self._is_closed:
                    raise SandboxLostError(CLOSED)
                if not is_wanted():
                    raise SandboxLostError("no sandbox was free until the rollout was over")
                while self._waiting:
                    if not (sandbox := self._waiting.popleft()).is_lost:
                        return sandbox
                left = deadline - time.monotonic()
                if left <= 0:
                    raise SandboxLostError(self._none_is_free())
                self._changed.wait(min(left, WANTED_SECONDS))

    def give_back(self, sandbox: Sandbox) -> None:
        with self._changed:
            if sandbox in self._held and isinstance(sandbox, PodSandbox):
                self._waiting.append(sandbox)
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            sandboxes = list(self._held)
            self._changed.notify_all()
        self._closing.set()
        self._wanted.set()
        for sandbox in sandboxes:
            sandbox.close()

    def _none_is_free(self) -> str:
        why = f"; the last fault: {self._last_error}" if self._last_error else ""
        return (
            f"no sandbox was free for {self._lease_seconds:g} s: this environment has {len(self._held)} of at most "
            f"{self._share} in use{why}. spec.sandbox.size says how many there are; see: kubectl get pods -l "
            f"rl-operator.dev/run={self._run_name},app.kubernetes.io/component=sandbox"
        )

    def _keep(self) -> None:
        pause = 0.0
        while not self._is_closed:
            if not self._is_missing():
                self._wanted.wait()
            self._wanted.clear()
            self._closing.wait(pause)
            try:
                has_found = self._look()
            except Exception:  # whatever it is, rollouts wait for what this thread leases
                logger.exception("looking for sandboxes failed; it is tried again")
                has_found = False
            pause = LOOK_SECONDS if has_found else min(max(2 * pause, LOOK_SECONDS), LONGEST_LOOK_SECONDS)

    def _look(self) -> bool:
        """Lease what is missing. Returns whether any was found."""
        before = len(self._held)
        for _ in range(min(self._share + 2, MOST_TRIES)):
            if not self._is_missing():
                break
            try:
                self._hold(PodSandbox(self._connect(), self._owner, self._has_ended))
            except SandboxBusyError:
                continue
            except ConnectionRefusedError as error:  # none runs, or one that does not listen yet
                self._note(f"{self._host}: {error}")
            except (OSError, SandboxError) as error:  # the chosen one has just ended
                self._note(f"{self._host}: {error}")
                break
        return len(self._held) > before

    def _is_missing(self) -> bool:
        return len(self._held) < self._share and not self._is_closed

    def _hold(self, sandbox: PodSandbox) -> None:
        with self._changed:
            is_late = self._is_closed
            if not is_late and not sandbox.is_lost:  # else `_has_ended` came before this
                self._held.add(sandbox)
                self._waiting.append(sandbox)
                self._changed.notify_all()
        if is_late:
            sandbox.close()

    def _has_ended(self, sandbox: PodSandbox) -> None:
        """By the rollout that had it, by its pod, or by the network between."""
        with self._changed:
            self._held.discard(sandbox)
            self._waiting = deque(each for each in self._waiting if each is not sandbox)
        self._wanted.set()

    def _note(self, why: str) -> None:
        """A warning if it has lasted: a sandbox that has ended is replaced within seconds."""
        self._last_error = why
        if self._held:
            self._next_warning = time.monotonic() + WARN_SECONDS
        elif time.monotonic() >= self._next_warning:
            self._next_warning = time.monotonic() + WARN_SECONDS
            logger.warning("no sandbox is to be had: %s; it is tried again until there is one", why)
