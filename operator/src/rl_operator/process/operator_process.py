"""The operator as a process: its connections, its ports, and what it waits for before it begins.

Probes answer on one port, metrics on another. None of these paths calls the API server.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler

from rl_operator.api.names import MANAGER
from rl_operator.cluster.api_server.client import ClusterClient, Middlewares
from rl_operator.cluster.api_server.connection import named
from rl_operator.cluster.api_server.request_guard import WatchAges, counted, fenced
from rl_operator.errors import OperatorError
from rl_operator.process.kinds import require_kinds, with_patience
from rl_operator.process.leading import LeaseThread
from rl_operator.process.operator import Operator
from rl_operator.settings import OperatorSettings


async def run_operator(settings: OperatorSettings) -> None:
    """The whole process. Raises OperatorErrors when the cluster cannot be served."""
    place = (settings.kubeconfig, settings.context)
    ages = WatchAges(settings.stuck_seconds)
    always = (named(MANAGER), counted(ages))
    async with AsyncExitStack() as stack:
        lease: LeaseThread | None = None
        fence: Middlewares = ()
        if settings.lease_name:
            # Connections of its own: slow calls about runs must not take those that the lease needs.
            connect = partial(ClusterClient.connect, *place, settings.lease_seconds / 4, always)
            held = lease = await stack.enter_async_context(LeaseThread(settings, connect))
            fence = (fenced(lambda: held.leads),)
        calls = (*always, *fence)
        client = await stack.enter_async_context(await ClusterClient.connect(*place, settings.request_seconds, calls))
        await _serve(Operator(client, settings, ages, lease), client, settings)


async def _serve(operator: Operator, client: ClusterClient, settings: OperatorSettings) -> None:
    """Probes respond from the start, so that the process can wait for an API server that is away."""
    probes = {"/healthz": probe(operator.health.trouble), "/readyz": probe(operator.health.unready)}
    scrapes = {"/metrics": metrics(operator.refresh_metrics)}
    async with (
        listening(settings.probe_host, settings.probe_port, probes),
        listening(settings.metrics_host, settings.metrics_port, scrapes),
    ):
        await with_patience(partial(require_kinds, client), settings.connect_seconds)
        await operator.run()


Trouble = Callable[[], str | None]
"""Says in a sentence what is wrong; None: nothing."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PortTakenError(OperatorError):
    """An address is not available for listening: the user must act."""


def probe(trouble: Trouble) -> Handler:
    """200, or 503 with the sentence."""

    async def answer(_: web.Request) -> web.Response:
        sentence = trouble()
        return web.Response(text=sentence or "ok", status=503 if sentence else 200)

    return answer


def metrics(refresh: Callable[[], None]) -> Handler:
    """All metrics of telemetry.py, and the process's own. `refresh` sets what is read only at a scrape."""
    expose = make_aiohttp_handler()

    async def answer(request: web.Request) -> web.StreamResponse:
        refresh()
        return await expose(request)

    return answer


@asynccontextmanager
async def listening(host: str, port: int, paths: Mapping[str, Handler]) -> AsyncIterator[None]:
    """Serve these paths; port 0: none. Raises PortTakenError."""
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
