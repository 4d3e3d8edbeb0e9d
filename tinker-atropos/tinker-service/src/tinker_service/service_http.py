"""The service's HTTP server: bound before it is announced, stopped when its `with` block ends."""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson
import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp

from tinker_service.service_errors import PortError


def _is_a_fault(record: logging.LogRecord) -> bool:
    """Uvicorn logs a traceback for each request that a shutdown cuts off, although nothing failed."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


logging.getLogger("uvicorn.error").addFilter(_is_a_fault)


class _SignallessServer(uvicorn.Server):
    """uvicorn without its own signal handlers: the process decides when it stops."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """Bind a listening socket; port 0 lets the kernel choose.

    Raises PortError naming the port and the option that sets it.
    """
    # asyncio disables Nagle's algorithm (40 ms per response) only if the protocol is given.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortError(f"port {port} on {host} is in use; end its owner or set --port to another port") from None
        raise PortError(f"cannot listen on {host}:{port} (--port): {error.strerror}") from None
    return listener


@contextlib.asynccontextmanager
async def serve(app: ASGIApp, listener: socket.socket) -> AsyncIterator[int]:
    """Serve an ASGI app on a bound socket while the block runs; yields the port."""
    port: int = listener.getsockname()[1]
    server = _SignallessServer(
        uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_keep_alive=75,
            proxy_headers=False,  # a peer is identified by its connection, not by a header
        )
    )
    task = asyncio.create_task(server.serve(sockets=[listener]), name=f"http:{port}")
    try:
        while not server.started and not task.done():  # bounded: the socket is bound, start-up does no I/O
            await asyncio.sleep(0.005)
        yield port
    finally:
        server.should_exit = True
        server.force_exit = True
        await task
        listener.close()


def json_response(content: Any, status_code: int = 200) -> Response:
    return Response(orjson.dumps(content), status_code, media_type="application/json")
