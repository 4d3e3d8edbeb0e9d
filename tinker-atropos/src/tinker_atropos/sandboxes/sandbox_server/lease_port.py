"""The port of a pod's sandbox: the first connection of the right owner gets the lease, all others an error.

A connection says in its first line what it wants: {"id", "method": "lease", "owner"}. One thread hears them all, so
that none holds up another.

Both ends of a lease ask the same of their connection. Source: tcp(7), socket(7).
"""

import json
import selectors
import socket
import struct
import time
from collections.abc import Callable

DEAD_SECONDS = 30
"""How long the other end's node may be gone, or its network, until the stream ends."""

SEND_SECONDS = 30
"""How long the other end may leave unread what is sent."""

PROBE_AFTER, PROBE_EVERY, PROBES = 10, 5, 3

TCP_OPTIONS = {
    "TCP_NODELAY": 1,
    "TCP_KEEPIDLE": PROBE_AFTER,
    "TCP_KEEPINTVL": PROBE_EVERY,
    "TCP_KEEPCNT": PROBES,
    "TCP_USER_TIMEOUT": 1000 * DEAD_SECONDS,
}


def prepare(stream: socket.socket) -> None:
    """Blocking; small lines are sent at once, and both an end that is gone and one that does not read are noticed."""
    stream.setblocking(True)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in TCP_OPTIONS.items():
        try:
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        except (AttributeError, OSError):  # not on this system: the others are still worth something
            continue


BUSY = "busy"
"""The error for those that come after the lease."""

STRANGER = "this sandbox belongs to another run"

MOST_SILENT = 16
"""Connections that have not said what they want; one more, and the oldest is closed."""

SILENT_SECONDS = 10.0
MAX_FIRST_LINE = 4096
PAUSE_SECONDS = 0.1
"""After a connection that could not be accepted, such as for want of file descriptors: it is still there."""


class LeasePort:
    """`begin` gets the leased connection, and the id of the request that it has to answer."""

    def __init__(
        self,
        listening: socket.socket,
        owner: str,
        begin: Callable[[socket.socket, object], None],
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        self._listening, self._owner, self._begin, self._silent_seconds = listening, owner, begin, silent_seconds
        self._callers: list[_Caller] = []
        self._is_leased = False
        self._selector = selectors.DefaultSelector()
        listening.setblocking(False)
        self._selector.register(listening, selectors.EVENT_READ)

    def look(self) -> None:
        """Wait until a connection says something, or was silent for too long, and answer it."""
        patience = max(0.0, self._callers[0].deadline - time.monotonic()) if self._callers else None
        for key, _ in self._selector.select(patience):
            if key.fileobj is self._listening:
                self._accept()
            elif key.data in self._callers:  # it was not closed for another one just now
                self._hear(key.data)
        for caller in list(self._callers):
            if caller.deadline <= time.monotonic():
                self._close(caller)

    def _accept(self) -> None:
        try:
            stream, _ = self._listening.accept()
        except OSError:
            time.sleep(PAUSE_SECONDS)
            return
        stream.setblocking(False)
        while len(self._callers) >= MOST_SILENT:
            self._close(self._callers[0])
        caller = _Caller(stream, time.monotonic() + self._silent_seconds)
        self._callers.append(caller)
        self._selector.register(stream, selectors.EVENT_READ, caller)

    def _hear(self, caller: "_Caller") -> None:
        try:
            heard = caller.stream.recv(MAX_FIRST_LINE)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        caller.said += heard
        if b"\n" in caller.said:
            self._answer(caller)
        elif not heard or len(caller.said) >= MAX_FIRST_LINE:
            self._close(caller)

    def _answer(self, caller: "_Caller") -> None:
        request = _lease_request(caller.said)
        if request is None:
            self._close(caller)
        elif request["owner"] != self._owner:
            self._refuse(caller, request["id"], STRANGER)
        elif self._is_leased:
            self._refuse(caller, request["id"], BUSY)
        elif _has_left(caller.stream):  # it has waited for too long: the lease would end as it begins
            self._close(caller)
        else:
            self._is_leased = True
            self._forget(caller)
            self._begin(caller.stream, request["id"])

    def _refuse(self, caller: "_Caller", number: object, error: str) -> None:
        try:
            caller.stream.send(json.dumps({"id": number, "error": error}).encode() + b"\n")
        except OSError:  # it does not wait for the answer
            pass
        self._close(caller)

    def _close(self, caller: "_Caller") -> None:
        self._forget(caller)
        caller.stream.close()

    def _forget(self, caller: "_Caller") -> None:
        self._callers.remove(caller)
        self._selector.unregister(caller.stream)


class _Caller:
    """A connection that has not said what it wants."""

    def __init__(self, stream: socket.socket, deadline: float) -> None:
        self.stream, self.deadline, self.said = stream, deadline, b""


def _has_left(stream: socket.socket) -> bool:
    try:
        return stream.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _lease_request(said: bytes) -> dict[str, object] | None:
    """One line, and nothing after it: nobody has been promised an answer yet."""
    try:
        request = json.loads(said)
    except (ValueError, RecursionError):
        return None
    if not said.endswith(b"\n") or not isinstance(request, dict) or request.get("method") != "lease":
        return None
    return request if {"id", "owner"} <= request.keys() else None
