"""What the process answers over HTTP: probes on one port, metrics on another. No path of it calls the API server."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler

from rl_operator.errors import OperatorError

Trouble = Callable[[], str | None]
"""Says in a sentence what is wrong; None: nothing."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PortTakenError(OperatorError):
    """An address cannot be listened on: a person must act."""


def probe(trouble: Trouble) -> Handler:
    """200, or 503 with the sentence."""

    async def answer(_: web.Request) -> web.Response:
        sentence = trouble()
        return web.Response(text=sentence or "ok", status=503 if sentence else 200)

    return answer


def metrics(refresh: Callable[[], None]) -> Handler:
    """All that telemetry.py names, and the process's own figures. `refresh` sets what is read only at a scrape."""
    expose = make_aiohttp_handler()

    async def answer(request: web.Request) -> web.StreamResponse:
        refresh()
        return await expose(request)

    return answer


@asynccontextmanager
async def listening(host: str, port: int, paths: Mapping[str, Handler]) -> AsyncIterator[None]:
    """Answer at these paths; port 0: at none. Raises PortTakenError."""
    if not port:
        yield
        return
    application = web.Application()
    for path, handler in paths.items():
        application.router.add_get(path, handler)
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise PortTakenError(f"{' and '.join(paths)} cannot be served at {host}:{port}: {error}") from error
    try:
        yield
    finally:
        await runner.cleanup()
