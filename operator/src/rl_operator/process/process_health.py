"""What probes and scrapes report about the process, and the ports that answer them.

Everything is read on demand, and nothing here calls the API server.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler

from rl_operator.cluster.api_server.request_guard import WatchAges
from rl_operator.cluster.cache.caches import Caches
from rl_operator.operator_errors import OperatorError
from rl_operator.process.queue import Queues
from rl_operator.telemetry import (
    ACTIVE_RUNS,
    ACTIVE_RUNS_LIMIT,
    LEADER,
    QUEUE_AGE,
    QUEUE_DEPTH,
    QUEUED_RUNS,
    RUNS,
    WATCH_AGE,
)


class ProcessHealth:
    """Liveness is about what a restart fixes. An API server that is away is not, nor is waiting for the lease."""

    def __init__(self, caches: Caches, queues: Queues, ages: WatchAges, *, stuck_seconds: float) -> None:
        self._caches = caches
        self._queues = queues
        self._ages = ages
        self._stuck_seconds = stuck_seconds
        self.synced = False
        """Whether all caches have been complete once."""

    def unready(self) -> str | None:
        """For the readiness probe. A standby is ready."""
        return None if self.synced else "the caches are not complete yet"

    def trouble(self) -> str | None:
        """For the liveness probe: what is stuck."""
        for plural, seconds in self._ages.stale().items():
            return f"the watch of {plural} has brought nothing for {seconds:.0f} s, though the API server answers"
        for queue in self._queues.all:
            if (seconds := queue.longest_running_seconds()) > self._stuck_seconds:
                return f"the reconcile of one {queue.kind} has been running for {seconds:.0f} s"
            if (seconds := queue.standstill_seconds()) > self._stuck_seconds:
                return f"{queue.depth} {queue.kind}s wait, and no reconcile has ended for {seconds:.0f} s"
        return None

    def refresh_metrics(self, *, leads: bool) -> None:
        """Set what is read only at a scrape. One pass over 10,000 runs takes about 2 ms."""
        LEADER.set(leads)
        RUNS.clear()
        for phase, count in Counter(run.status.phase for run in self._caches.runs).items():
            RUNS.labels(phase or "Pending").inc(count)
        for gauge in (ACTIVE_RUNS, QUEUED_RUNS, ACTIVE_RUNS_LIMIT):
            gauge.clear()
        for runtime, active, waiting, limit in self._caches.runtime_queues.counts():
            ACTIVE_RUNS.labels(runtime).set(active)
            QUEUED_RUNS.labels(runtime).set(waiting)
            if limit is not None:
                ACTIVE_RUNS_LIMIT.labels(runtime).set(limit)
        for queue in self._queues.all:
            QUEUE_DEPTH.labels(queue.kind).set(queue.depth)
            QUEUE_AGE.labels(queue.kind).set(queue.oldest_waiting_seconds())
        for plural, seconds in self._ages.silent_seconds().items():
            WATCH_AGE.labels(plural).set(seconds)


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
