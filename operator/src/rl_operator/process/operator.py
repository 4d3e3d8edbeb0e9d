"""The operator: its parts started in order, and stopped together."""

import asyncio
import logging
import random
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

from rl_operator.api.names import ENVIRONMENT_PLURAL, RUN_PLURAL, RUNTIME_PLURAL
from rl_operator.cluster.api_server.client import METADATA_ONLY, ClusterClient
from rl_operator.cluster.api_server.connection import own_namespace
from rl_operator.cluster.api_server.request_guard import WatchAges
from rl_operator.cluster.api_server.resources import NAMESPACES
from rl_operator.cluster.cache.caches import Caches, Changes, list_catalogs, list_own_kinds
from rl_operator.cluster.cache.informer import Informer
from rl_operator.operator_errors import ForbiddenError, OperatorError, TargetUnreachableError
from rl_operator.operator_settings import OperatorSettings
from rl_operator.process.kinds import require_kinds, with_patience
from rl_operator.process.kopf import Gaps, build_registry, serve_kopf
from rl_operator.process.lease_thread import LeaseThread, lead
from rl_operator.process.operator_parts import Part, assemble
from rl_operator.status.observed.observation import PodObservation

log = logging.getLogger(__name__)

SYNC_SECONDS = 60.0
OWN_KINDS = (RUN_PLURAL, RUNTIME_PLURAL, ENVIRONMENT_PLURAL)


class Operator:
    """The process's main loop. Keeps nothing that the API server does not have."""

    def __init__(
        self, client: ClusterClient, settings: OperatorSettings, ages: WatchAges, lease: LeaseThread | None = None
    ) -> None:
        self._settings = settings
        self._client = client
        self._ages = ages
        self._lease = lease
        self._namespace = settings.namespace or None
        self._own_namespace = settings.operator_namespace or own_namespace()
        self._working = asyncio.Event()
        self.parts = assemble(client, settings, ages, self._own_namespace, self._working.is_set)
        self._gaps = Gaps(self._close_gap)
        self._refused = asyncio.Event()
        self._refusal: ForbiddenError | None = None
        self._stop_asked = False
        self._kopf: asyncio.Task[None] | None = None

    # --- start and end ------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT; then release the lease."""
        try:
            async with asyncio.TaskGroup() as group:
                await with_patience(self._list_at_start, self._settings.connect_seconds)
                # One after the other: lists that are read in parallel cost memory that is never returned.
                tasks = [await self._synced(group, informer) for informer in self.parts.informers]
                self.parts.health.synced = True
                self._ages.expect((*OWN_KINDS, *(informer.what for informer in self.parts.informers)))
                tasks += [group.create_task(part) for part in self._beside_kopf()]
                log.info("ready: %d runs, %d runtimes", len(self.parts.caches.runs), len(self.parts.caches.runtimes))
                await self._serve()
                for task in tasks:
                    task.cancel()
        finally:
            if self._stop_asked and self._namespace and self._working.is_set():
                let_go = self.parts.run_client.remove_finalizer
                await release_pods(self._namespace, self._client, self.parts.caches, let_go)
            if self._lease is not None:
                await self._lease.release()

    async def _synced(self, group: asyncio.TaskGroup, informer: Informer[Any, Any]) -> asyncio.Task[None]:
        """Start an informer and wait for its first complete list."""
        task = group.create_task(informer.run())
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                await informer.wait_synced()
        except TimeoutError as error:
            raise TargetUnreachableError(f"{informer.what} could not be listed within {SYNC_SECONDS:.0f} s") from error
        return task

    def _beside_kopf(self) -> Iterator[Coroutine[object, object, None]]:
        """What runs next to the watches. kopf ends every task that began after it: these begin before, and wait."""
        yield lead(self._lease, self._begin)
        yield self._resync()
        yield self._gaps.run()
        for part in self.parts.working:
            yield self._once_working(part)

    async def _once_working(self, part: Part) -> None:
        await self._working.wait()
        await part()

    def _begin(self) -> None:
        """The caches are complete: look at everything once, including what another leader has looked at."""
        for queue in self.parts.queues.all:
            queue.begin()
        self.parts.routes.add_all(spread_seconds=0.0)
        self.parts.routes.add_expiring()
        self._working.set()
        log.info("working: all is looked at")

    async def _serve(self) -> None:
        """Let kopf watch our kinds. If it ends by itself, the API server may give the reason in one sentence."""
        events = (self.parts.routes.run_event, self.parts.routes.runtime_event, self.parts.routes.environment_event)
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
            self.parts.routes.add_all(spread_seconds=interval / 10)

    async def _list_at_start(self) -> None:
        await self._list_own_kinds()
        await list_catalogs(self._client, self.parts.caches.catalogs, self._own_namespace)

    async def _close_gap(self) -> None:
        self.parts.routes.listed(await self._list_own_kinds())

    async def _list_own_kinds(self) -> Changes:
        return await list_own_kinds(self._client, self.parts.caches, self._namespace)

    def refresh_metrics(self) -> None:
        self.parts.health.refresh_metrics(leads=self._lease.leads if self._lease else True)


async def release_pods(
    namespace: str,
    client: ClusterClient,
    caches: Caches,
    remove_finalizer: Callable[[PodObservation], Awaitable[None]],
) -> None:
    """If that namespace is being deleted, with the operator that serves it: no pod in it waits for this operator any
    longer. Never fails.

    Kubernetes deletes a namespace's pods first, this process among them, and all else once no pod is left. A pod of a
    run would wait for the operator to read its result, and no operator would come. Its run is going to be deleted, too:
    there is no status that the result could be written into, and nothing is lost.
    """
    try:
        found = await client.get(NAMESPACES.path(name=namespace), accept=METADATA_ONLY)
        if not found["metadata"].get("deletionTimestamp"):
            return
        held = [pod.observation for pod in caches.pods if pod.observation.held]
        log.info(
            "namespace %s is being deleted: %d pods no longer wait for their results to be read", namespace, len(held)
        )
        for pod in held:
            await remove_finalizer(pod)
    except OperatorError as error:
        log.warning("pods of namespace %s may keep their finalizer: %s", namespace, error)
