"""The operator: its parts assembled, started in order, stopped together."""

import asyncio
import logging
import os
import random
import signal
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from rl_operator.api.names import ENVIRONMENT_PLURAL, MANAGED_BY_LABEL, MANAGER, RUN_LABEL, RUN_PLURAL, RUNTIME_PLURAL
from rl_operator.cluster.api_server.client import JSON, METADATA_ONLY, ClusterClient
from rl_operator.cluster.api_server.connection import own_namespace
from rl_operator.cluster.api_server.event_recorder import EventRecorder
from rl_operator.cluster.api_server.request_guard import WatchAges
from rl_operator.cluster.api_server.resources import CHILDREN, NAMESPACES
from rl_operator.cluster.cache.caches import Caches, Catalogs, Changes, list_catalogs, list_own_kinds
from rl_operator.cluster.cache.informer import Informer
from rl_operator.cluster.cache.queue import WorkQueue
from rl_operator.cluster.cache.resource_cache import Key
from rl_operator.cluster.cluster_run_client import ClusterRunClient
from rl_operator.cluster.kinds_client import KindsClient
from rl_operator.documents.shipped import bundled_runtimes
from rl_operator.errors import ForbiddenError, OperatorError, TargetUnreachableError
from rl_operator.process.ending_namespace import release_pods
from rl_operator.process.kinds import require_kinds, with_patience
from rl_operator.process.kopf import Gaps, build_registry, serve_kopf
from rl_operator.process.leading import LeaseThread, lead
from rl_operator.process.pollers import polled_metrics
from rl_operator.process.process_health import ProcessHealth
from rl_operator.process.routes import Queues, Routes
from rl_operator.reconcile.reconcile import Pace, reconcile
from rl_operator.reconcile.reconcile_kinds import reconcile_environment, reconcile_runtime
from rl_operator.settings import OperatorSettings
from rl_operator.status.observed.observation import PodObservation

log = logging.getLogger(__name__)

SYNC_SECONDS = 60.0
ENVIRONMENT_WORKERS = 2
"""Each reading of code takes its own process."""
CHILDREN_SELECTOR = f"{MANAGED_BY_LABEL}={MANAGER},{RUN_LABEL}"
OWN_KINDS = (RUN_PLURAL, RUNTIME_PLURAL, ENVIRONMENT_PLURAL)


class Operator:
    """All parts of the process, wired. Keeps nothing that the API server does not have."""

    def __init__(
        self, client: ClusterClient, settings: OperatorSettings, ages: WatchAges, lease: LeaseThread | None = None
    ) -> None:
        self._settings = settings
        self._client = client
        self._lease = lease
        self._namespace = settings.namespace or None
        self._own_namespace = settings.operator_namespace or own_namespace()
        self._refused = asyncio.Event()
        self._refusal: ForbiddenError | None = None
        self._leading = asyncio.Event()
        self._stop_asked = False
        self._kopf: asyncio.Task[None] | None = None
        self._ages = ages
        self.caches = Caches(Catalogs(_bundled_images(settings)))
        self._recorder = EventRecorder(client, busy=lambda: self.queues.runs.depth > 0)
        self._gaps = Gaps(self._close_gap)
        self._metrics = polled_metrics(self.caches, settings, self._metrics_changed, os.environ)
        self._run_client = ClusterRunClient(client, self.caches, self._recorder, self._metrics)
        self.queues = self._queues()
        self.routes = Routes(self.caches, self.queues, position_seconds=settings.progress_seconds)
        self.health = ProcessHealth(self.caches, self.queues, ages, stuck_seconds=settings.stuck_seconds)
        self._informers = tuple(self._children_informers())
        if self._namespace is None:
            self._informers += (
                Informer(client, NAMESPACES, self.caches.namespaces, self._namespace_changed, accept=METADATA_ONLY),
            )

    def _queues(self) -> Queues:
        """A queue per kind. One runtime at a time: runtimes with the same image share its reading."""
        clock = self._client.clock.now
        kinds = KindsClient(self._client, self.caches, self._recorder, self._catalog_changed)
        pace = Pace(self._settings.backoff_seconds, self._settings.progress_seconds)
        queue = partial(WorkQueue, standing_by=True)
        namespace = self._own_namespace
        return Queues(
            runs=queue(
                partial(reconcile, client=self._run_client, clock=clock, pace=pace), kind="run", urgent=self._is_new
            ),
            environments=queue(partial(reconcile_environment, client=kinds, clock=clock), kind="environment"),
            runtimes=queue(partial(reconcile_runtime, client=kinds, clock=clock, namespace=namespace), kind="runtime"),
        )

    def _children_informers(self) -> Iterator[Informer[Any]]:
        """For everything but pods only existence matters."""
        for kind, store in self.caches.children.items():
            yield Informer(
                self._client,
                CHILDREN[kind],
                store,
                self.queues.runs.add,
                namespace=self._namespace,
                selector=CHILDREN_SELECTOR,
                accept=JSON if kind == "Pod" else METADATA_ONLY,
            )

    # --- start and end ------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT; then release the lease."""
        try:
            async with asyncio.TaskGroup() as group:
                await with_patience(self._list_at_start, self._settings.connect_seconds)
                # One after the other: lists that are read in parallel cost memory that is never returned.
                tasks = [await self._synced(group, informer) for informer in self._informers]
                self.health.synced = True
                self._ages.expect((*OWN_KINDS, *(informer.what for informer in self._informers)))
                tasks += [group.create_task(part) for part in self._parts()]
                log.info("ready: %d runs, %d runtimes", len(self.caches.runs), len(self.caches.runtimes))
                await self._serve()
                for task in tasks:
                    task.cancel()
        finally:
            if self._stop_asked and self._namespace and self._leading.is_set():
                await release_pods(self._namespace, self._client, self.caches, self._run_client.remove_finalizer)
            if self._lease is not None:
                await self._lease.release()

    async def _synced(self, group: asyncio.TaskGroup, informer: Informer[Any]) -> asyncio.Task[None]:
        """Start an informer and wait for its first complete list."""
        task = group.create_task(informer.run())
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                await informer.wait_synced()
        except TimeoutError as error:
            raise TargetUnreachableError(f"{informer.what} could not be listed within {SYNC_SECONDS:.0f} s") from error
        return task

    def _parts(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What runs next to the watches. kopf ends every task that began after it: these begin before, and wait."""
        yield lead(self._lease, self._begin)
        yield self._resync()
        yield self._gaps.run()
        working = [self.queues.runs.work] * self._settings.workers
        working += [self.queues.environments.work] * ENVIRONMENT_WORKERS
        for part in (*working, self.queues.runtimes.work, self._recorder.run, self._metrics.run):
            yield self._when_leading(part)

    async def _when_leading(self, part: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await self._leading.wait()
        await part()

    def _begin(self) -> None:
        """The caches are complete: look at everything once, including what another leader has looked at."""
        for queue in self.queues.all:
            queue.begin()
        self.routes.add_all(spread_seconds=0.0)
        self.routes.add_expiring()
        self._leading.set()
        log.info("working: all is looked at")

    async def _serve(self) -> None:
        """Let kopf watch our kinds. If it ends by itself, the API server may give the reason in one sentence."""
        events = (self.routes.run_event, self.routes.runtime_event, self.routes.environment_event)
        registry = build_registry(
            self._client,
            events=dict(zip(OWN_KINDS, events, strict=True)),
            refused=self._end_refused,
            listed=self._gaps.note,
        )
        self._kopf = asyncio.create_task(serve_kopf(registry, self._namespace, self._refused, self._take_signals))
        self._take_signals()
        try:
            await self._kopf
        except asyncio.CancelledError:
            if not self._stop_asked:
                raise
        except Exception:
            if not self._stop_asked:
                await self._explain_end()
                raise
            log.debug("kopf was stopped while it started", exc_info=True)
        else:
            await self._explain_end()

    def _end_refused(self, refusal: ForbiddenError) -> None:
        self._refusal = refusal
        self._refused.set()

    async def _explain_end(self) -> None:
        """Raises what ended kopf, if the API server gives the reason. What it has said once is not asked again."""
        if self._refusal is not None:
            raise self._refusal
        await require_kinds(self._client)

    def _take_signals(self) -> None:
        """In place of kopf's own handlers, which would let it wait for remaining tasks."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._ask_to_stop)

    def _ask_to_stop(self) -> None:
        self._stop_asked = True
        if self._kopf is not None:
            self._kopf.cancel()

    # --- lists --------------------------------------------------------------------------------------------------
    async def _resync(self) -> None:
        """Look at everything again periodically: a bug or a lost event costs minutes, not a run. Standbys list, too."""
        while True:
            interval = self._settings.resync_seconds
            await asyncio.sleep(interval * random.uniform(0.8, 1.2))  # noqa: S311 -- jitter, not a secret
            try:
                await self._list_own_kinds()
            except OperatorError as error:
                log.warning("resync: %s", error)
            self.routes.add_all(spread_seconds=interval / 10)

    async def _list_at_start(self) -> None:
        await self._list_own_kinds()
        await list_catalogs(self._client, self.caches.catalogs, self._own_namespace)

    async def _close_gap(self) -> None:
        self.routes.listed(await self._list_own_kinds())

    async def _list_own_kinds(self) -> Changes:
        return await list_own_kinds(self._client, self.caches, self._namespace)

    def _is_new(self, key: Key) -> bool:
        """A run that nothing was said about yet starts before others are looked at again."""
        run = self.caches.runs.get(key)
        return run is not None and run.status.phase is None

    # Named here because queues and routes need each other.
    def _metrics_changed(self, pod: PodObservation) -> None:
        self.routes.metrics_changed(pod)

    def _catalog_changed(self, image: str) -> None:
        self.routes.catalog_changed(image)

    def _namespace_changed(self, key: Key) -> None:
        """Each of them scans all runs: at the start, when all namespaces are new, that would be wasted."""
        if self._leading.is_set():
            self.routes.namespace_changed(key)

    def refresh_metrics(self) -> None:
        self.health.refresh_metrics(leads=self._lease.leads if self._lease else True)


def _bundled_images(settings: OperatorSettings) -> frozenset[str]:
    """Images whose catalog came with this package."""
    if settings.bundled_image:
        return frozenset({settings.bundled_image})
    return frozenset(runtime.spec.image for runtime in bundled_runtimes().values())
