"""HTTP servers inside a process: bound before they are announced, stopped when their `with` block ends."""

import asyncio
import contextlib
import errno
import hmac
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import orjson
import uvicorn
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rl_contract.processes import OPS_TOKEN_HEADER
from tinker_atropos.errors import InternalError

REFUSAL: Final = "this port is for environments of the run, which were told the path to it; this request came from "
"""To who does not know the path below which environments of other pods are served."""


def _is_a_fault(record: logging.LogRecord) -> bool:
    """Uvicorn logs a traceback for each request that a shutdown cuts off, although nothing failed."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


logging.getLogger("uvicorn.error").addFilter(_is_a_fault)


class _EmbeddedServer(uvicorn.Server):
    """uvicorn without its own signal handlers: the process decides when it stops."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def read_limited(request: Request, limit: int) -> tuple[bytes, int]:
    """The body and its size in bytes; a body larger than `limit` is read to its end and discarded: a client that is
    still sending does not see a response.
    """
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        else:
            chunks.clear()
    return b"".join(chunks), size


def bind(host: str, port: int, variable: str) -> socket.socket:
    """Bind a listening socket; port 0 lets the kernel choose.

    Raises InternalError naming the port and the variable that sets it.
    """
    # asyncio disables Nagle's algorithm (40 ms per response) only if the protocol is given.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise InternalError(
                f"port {port} on {host} is in use; end its owner or set {variable} to another port"
            ) from None
        raise InternalError(f"cannot listen on {host}:{port} ({variable}): {error.strerror}") from None
    return listener


@contextlib.asynccontextmanager
async def serve(app: ASGIApp, listener: socket.socket) -> AsyncIterator[int]:
    """Serve an ASGI app on a bound socket while the block runs; yields the port."""
    port: int = listener.getsockname()[1]
    server = _EmbeddedServer(
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


def json_response(content: object, status_code: int = 200) -> Response:
    return Response(orjson.dumps(content), status_code, media_type="application/json")


def below(path: str, app: ASGIApp) -> ASGIApp:
    """Serve `app` below `path` (`/SECRET`), and on loopback without it, too. An empty path leaves it as it is.

    A NetworkPolicy sees pods, not containers: beside an environment of ours, its pod may hold a server of a stranger
    (OpenEnv), which reaches the same ports. Only who was told the path gets past the first segment of a URL:
    `RL_API_URL=http://run.ns.svc:8000/PATH`. Whoever calls on loopback is of the run's own pod, and needs none.
    """
    if not path:
        return app

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            asked: str = scope["path"]
            if asked.startswith(f"{path}/"):
                plain = asked.removeprefix(path)
                scope = {**scope, "path": plain, "raw_path": plain.encode()}
            elif not is_loopback(scope):
                await json_response({"detail": f"{REFUSAL}{peer_of(scope)}"}, 403)(scope, receive, send)
                return
        await app(scope, receive, send)

    return guarded


_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
"""The rest of 127.0.0.0/8 is not ours: a sidecar (Istio) passes on what other pods send from 127.0.0.6."""


def is_loopback(scope: Scope) -> bool:
    """By the connection's own address, not by a header."""
    return peer_of(scope) in _LOOPBACK


def peer_of(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else "an unknown address"


_OPEN: Final = frozenset({"/healthz", "/metrics"})
"""The kubelet probes, and Prometheus scrapes, without a token: neither path shows anything of a rollout."""

WITHOUT_TOKEN: Final = (
    f"this path needs the pod's token in the header {OPS_TOKEN_HEADER}; rlctl and the page read with your own rights"
)
NOT_FROM_HERE: Final = (
    "this process has no token, so that this path is for callers on 127.0.0.1 only; this one came from "
)

_HERE: Final = frozenset({"localhost", "127.0.0.1", "::1", ""})


def guarded(app: ASGIApp, token: str | None) -> ASGIApp:
    """All but `/healthz` and `/metrics` for callers with the token; without one, for those on this machine, or in this
    pod. A browser that a name of a stranger led here says so in `Host`.
    """

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _OPEN and (refusal := _refusal(scope, token)):
            await refusal(scope, receive, send)
            return
        await app(scope, receive, send)

    return guard


def _refusal(scope: Scope, token: str | None) -> Response | None:
    headers = Headers(scope=scope)
    if token:
        sent = headers.get(OPS_TOKEN_HEADER, "")
        return None if hmac.compare_digest(sent.encode(), token.encode()) else _refused(WITHOUT_TOKEN, 401)
    host = headers.get("host", "").removeprefix("[").partition("]")[0]
    named_here = bool(_HERE & {host, host.partition(":")[0]})
    return None if is_loopback(scope) and named_here else _refused(f"{NOT_FROM_HERE}{peer_of(scope)}", 403)


def _refused(sentence: str, status_code: int) -> Response:
    return json_response({"error": sentence}, status_code)


def ops_app(
    unready: Callable[[], str | None],
    status: Callable[[], dict[str, object]],
    extra_routes: list[Route] | None = None,
    registry: CollectorRegistry = REGISTRY,
    token: str | None = None,
) -> ASGIApp:
    """The ops port: `/healthz` (200, or 503 with the reason), `/status` (JSON), `/metrics` (Prometheus); `guarded`."""

    async def healthz(_request: Request) -> Response:
        reason = unready()
        return PlainTextResponse(reason or "ok", 503 if reason else 200)

    async def show_status(_request: Request) -> Response:
        return json_response(status())

    async def metrics(_request: Request) -> Response:
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    routes = [Route("/healthz", healthz), Route("/status", show_status), Route("/metrics", metrics)]
    return guarded(Starlette(routes=[*routes, *(extra_routes or [])]), token)
