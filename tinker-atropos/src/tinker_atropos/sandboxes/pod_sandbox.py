"""A sandbox that is a pod: the first process of its container serves whoever leases it over TCP."""

import json
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from tinker_atropos.sandboxes.sandbox import SandboxError, SandboxLostError
from tinker_atropos.sandboxes.sandbox_server.lease_listener import BUSY
from tinker_atropos.sandboxes.sandbox_server.tcp_stream import prepare
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


class ServiceAddress:
    """Of a name that is looked up once, and again after a connection has failed."""

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
