"""The HTTP server of the tools: one process, until SIGTERM or Ctrl-C."""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from rl_operator.operator_errors import RefusedError
from rl_operator.tools.serving.call_pool import Calls

HEAD_SECONDS: Final = 10.0
MAX_WAITING: Final = 256
"""Half of the connections that are served."""
MAX_WAITING_OF_ADDRESS: Final = 64
MAX_OF_ADDRESS: Final = 384
"""A proxy's callers share its address."""


class WaitingConnections:
    """All connections with their addresses, and those that wait in the order in which they began to.

    One that has to go is none from then on, not from when it is closed: all of a burst come before the first is closed.
    """

    def __init__(self) -> None:
        self._open: dict[H11Protocol, str] = {}
        self._waiting: dict[H11Protocol, str] = {}

    def opened(self, address: str, connection: H11Protocol) -> bool:
        """False if the address has too many: it has to go."""
        if list(self._open.values()).count(address) >= MAX_OF_ADDRESS:
            return False
        self._open[connection] = address
        return True

    def closed(self, connection: H11Protocol) -> None:
        """Also one that had to go."""
        self._waiting.pop(connection, None)
        self._open.pop(connection, None)

    def waits(self, connection: H11Protocol) -> H11Protocol | None:
        """From now on. Returns the connection that has to go for it, if there is one."""
        self._waiting.pop(connection, None)
        address = self._open[connection]
        of_address = [other for other, place in self._waiting.items() if place == address]
        self._waiting[connection] = address
        former = of_address[0] if len(of_address) >= MAX_WAITING_OF_ADDRESS else None
        if former is None and len(self._waiting) > MAX_WAITING:
            former = next(iter(self._waiting))
        if former is not None:
            self.closed(former)
        return former

    def works(self, connection: H11Protocol) -> None:
        """Its request has come."""
        self._waiting.pop(connection, None)


class GuardedProtocol(H11Protocol):
    """A place in the table, and a timer while it waits. `guarded_protocol` makes the class of one server."""

    connections_of_server: ClassVar[WaitingConnections]
    head_seconds: ClassVar[float]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        super().connection_made(transport)
        if self.connections_of_server.opened(self.client[0] if self.client else "", self):
            self._wait()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.connections_of_server.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
            self.connections_of_server.works(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self._wait()

    def _wait(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.head_seconds, self.transport.abort)
        former = self.connections_of_server.waits(self)
        if former is not None:
            former.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def guarded_protocol(head_seconds: float = HEAD_SECONDS) -> type[asyncio.Protocol]:
    """For one server: its connections know of each other."""
    its_own = {"connections_of_server": WaitingConnections(), "head_seconds": head_seconds}
    return type("GuardedProtocolOfServer", (GuardedProtocol,), its_own)


MAX_CONNECTIONS = 512
"""Further ones get a 503."""

GRACE_SECONDS = 5
"""For calls in progress when the process is asked to end."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._ending()
        super().handle_exit(sig, frame)


def listen(host: str, port: int) -> socket.socket:
    """Port 0: the kernel chooses. Raises RefusedError."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise RefusedError(
            f"cannot listen on {host} port {port}: {error}; choose others with --host, --port"
        ) from error


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(app: ASGIApp, listener: socket.socket, calls: Calls, head_seconds: float = HEAD_SECONDS) -> None:
    """When asked to end, it accepts nothing new, answers waiting callers with the current state, and returns.
    `head_seconds`: how long the head of a request may take.
    """
    config = uvicorn.Config(
        app,
        loop="asyncio",  # another one, if it is installed, takes 3 MiB more
        http=guarded_protocol(head_seconds),
        proxy_headers=False,  # a caller is known by its connection, not by a header
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises the signal again after handling it
        signal.signal(number, lambda *_: sys.exit(0))
    _Server(config, calls.end).run(sockets=[listener])
