"""The HTTP server of the tools: one process, until SIGTERM or Ctrl-C."""

import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from rl_operator.errors import RefusedError
from rl_operator.tools.serving.call_pool import Calls
from rl_operator.tools.serving.guarded_connections import HEAD_SECONDS, guarded_protocol

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
