"""The operator: its parts made and connected, started in order, and stopped together.

The queues come first and know nobody: their workers are told what to do with a key. Whatever changes calls a route,
and routes add keys to queues.
"""

import asyncio
import logging
import os
import random
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any

from rl_contract.env_vars import WANDB_API_KEY
from rl_operator.api.names import MANAGED_BY_LABEL, MANAGER, RUN_LABEL, TRAINING_COMPONENT
from rl_operator.api.runtime import Runtime
from rl_operator.cluster.api_server.client import JSON, METADATA_ONLY, ClusterClient
from rl_operator.cluster.api_server.connection import own_namespace
from rl_operator.cluster.api_server.event_recorder import EventRecorder
from rl_operator.cluster.api_server.leader_election import LeaseThread, lead
from rl_operator.cluster.api_server.request_guard import WatchAges
from rl_operator.cluster.api_server.resources import CHILDREN, NAMESPACES, require_kinds
from rl_operator.cluster.cache.caches import Caches, Catalogs, list_catalogs, list_own_kinds
from rl_operator.cluster.cache.informer import Informer
from rl_operator.cluster.cache.resource_cache import Key
from rl_operator.cluster.cluster_run_client import ClusterRunClient
from rl_operator.cluster.kinds_client import KindsClient
from rl_operator.documents.shipped import bundled_runtimes
from rl_operator.metrics.metrics_source import PolledMetrics
from rl_operator.metrics.trainer_poller import TrainerPoller
from rl_operator.metrics.wandb_poller import AskedRun, WandbPoller
from rl_operator.metrics.wandb_query import place_of
from rl_operator.operator_errors import ForbiddenError, OperatorError, TargetUnreachableError
from rl_operator.operator_settings import OperatorSettings
from rl_operator.process.kopf import Gaps, build_registry, serve_kopf
from rl_operator.process.process_health import ProcessHealth
from rl_operator.process.queue import Queues, Routes, WorkQueue
from rl_operator.reconcile.reconcile import ReconcilePace, reconcile
from rl_operator.reconcile.reconcile_kinds import reconcile_environment, reconcile_runtime
from rl_operator.render.network import operator_peer
from rl_operator.status.observed.observation import PodObservation
from rl_operator.status.observed.wandb_run import is_current

log = logging.getLogger(__name__)

SYNC_SECONDS = 60.0
RETRY_SECONDS = 0.5

ENVIRONMENT_WORKERS = 2
"""Each reading of code takes its own process."""
CHILDREN_SELECTOR = f"{MANAGED_BY_LABEL}={MANAGER},{RUN_LABEL}"

Part = Callable[[], Coroutine[Any, Any, None]]
"""What runs until it is cancelled."""


class Operator:
    """The process's main loop. Keeps nothing that the API server does not have.

    Its informers run from the start; the parts that write, once this process is the one that works.
    """

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
        self.caches = Caches(Catalogs(_bundled_images(settings)))
        self._queues = _queues(self.caches)
        self._routes = Routes(self.caches, self._queues, position_seconds=settings.progress_seconds)
        self.health = ProcessHealth(self.caches, self._queues, ages, stuck_seconds=settings.stuck_seconds)
        self._recorder = EventRecorder(client, busy=lambda: self._queues.runs.depth > 0)
        self._metrics = polled_metrics(self.caches, settings, self._routes.metrics_changed, os.environ)
        peers = (operator_peer(self._own_namespace), *settings.named_peers())
        self._run_client = ClusterRunClient(client, self.caches, self._recorder, self._metrics, peers)
        self.informers = tuple(self._informers())
        self._gaps = Gaps(self._list_own_kinds)
        self._refused = asyncio.Event()
        self._refusal: ForbiddenError | None = None
        self._stop_asked = False
        self._kopf: asyncio.Task[None] | None = None

    # --- its parts ----------------------------------------------------------------------------------------------
    def _informers(self) -> Iterator[Informer[Any, Any]]:
        """Of what runs own: only existence matters, except for pods. Of namespaces, unless one alone is served."""
        for kind, store in self.caches.children.items():
            yield Informer(
                self._client,
                CHILDREN[kind],
                store,
                self._queues.runs.add,
                namespace=self._namespace,
                selector=CHILDREN_SELECTOR,
                accept=JSON if kind == "Pod" else METADATA_ONLY,
            )
        if self._namespace is None:
            changed = self._namespace_changed
            yield Informer(self._client, NAMESPACES, self.caches.namespaces, changed, accept=METADATA_ONLY)

    def _namespace_changed(self, key: Key) -> None:
        """Each of them scans all runs: at the start, when all namespaces are new, that would be wasted."""
        if self._working.is_set():
            self._routes.namespace_changed(key)

    def _working_parts(self) -> Iterator[Part]:
        """One runtime at a time: runtimes with the same image share its reading."""
        kinds_client = KindsClient(self._client, self.caches, self._recorder, self._routes.catalog_changed)
        queues, clock = self._queues, self._client.clock.now
        pace = ReconcilePace(self._settings.backoff_seconds, self._settings.progress_seconds)
        of_run = partial(reconcile, client=self._run_client, clock=clock, pace=pace)
        of_environment = partial(reconcile_environment, client=kinds_client, clock=clock)
        of_runtime = partial(reconcile_runtime, client=kinds_client, clock=clock, namespace=self._own_namespace)
        yield from [partial(queues.runs.work, of_run)] * self._settings.workers
        yield from [partial(queues.environments.work, of_environment)] * ENVIRONMENT_WORKERS
        yield partial(queues.runtimes.work, of_runtime)
        yield self._recorder.run
        yield self._metrics.run

    # --- start and end ------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT; then release the lease."""
        try:
            async with asyncio.TaskGroup() as group:
                await with_patience(self._list_at_start, self._settings.connect_seconds)
                # One after the other: lists that are read in parallel cost memory that is never returned.
                tasks = [await self._synced(group, informer) for informer in self.informers]
                self.health.synced = True
                self._ages.expect((*self.caches.own_kinds, *(informer.what for informer in self.informers)))
                tasks += [group.create_task(part) for part in self._beside_kopf()]
                log.info("ready: %d runs, %d runtimes", len(self.caches.runs), len(self.caches.runtimes))
                await self._serve()
                for task in tasks:
                    task.cancel()
        finally:
            if self._stop_asked and self._namespace and self._working.is_set():
                let_go = self._run_client.remove_finalizer
                await release_pods(self._namespace, self._client, self.caches, let_go)
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
        for part in self._working_parts():
            yield self._once_working(part)

    async def _once_working(self, part: Part) -> None:
        await self._working.wait()
        await part()

    def _begin(self) -> None:
        """The caches are complete: look at everything once, including what another leader has looked at."""
        for queue in self._queues.all:
            queue.begin()
        self._routes.add_all(spread_seconds=0.0)
        self._routes.add_expiring()
        self._working.set()
        log.info("working: all is looked at")

    async def _serve(self) -> None:
        """Let kopf watch our kinds. If it ends by itself, the API server may give the reason in one sentence."""
        registry = build_registry(
            self._client,
            events={plural: partial(self._routes.take, plural) for plural in self.caches.own_kinds},
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
            self._routes.add_all(spread_seconds=interval / 10)

    async def _list_at_start(self) -> None:
        await self._list_own_kinds()
        await list_catalogs(self._client, self.caches.catalogs, self._own_namespace)

    async def _list_own_kinds(self) -> None:
        await list_own_kinds(self._client, self.caches, self._namespace, self._routes.changed)

    def refresh_metrics(self) -> None:
        self.health.refresh_metrics(leads=self._lease.leads if self._lease else True)


async def release_pods(
    namespace: str, client: ClusterClient, caches: Caches, remove_finalizer: Callable[[PodObservation], Awaitable[None]]
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
        held = [pod for pod in caches.pods if pod.held]
        log.info(
            "namespace %s is being deleted: %d pods no longer wait for their results to be read", namespace, len(held)
        )
        for pod in held:
            await remove_finalizer(pod)
    except OperatorError as error:
        log.warning("pods of namespace %s may keep their finalizer: %s", namespace, error)


async def with_patience(call: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Make a call that may be repeated; an API server that is still starting is given some time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    said = False
    while True:
        try:
            return await call()
        except TargetUnreachableError as error:
            if loop.time() + RETRY_SECONDS > deadline:
                raise TargetUnreachableError(f"{error} (tried for {seconds:.0f} s)") from error
            if not said:
                log.warning("waiting up to %.0f s for the API server: %s", seconds, error)
            said = True
        await asyncio.sleep(RETRY_SECONDS)


def _queues(caches: Caches) -> Queues:
    def is_new(key: Key) -> bool:
        """A run that nothing was said about yet starts before others are looked at again."""
        run = caches.runs.get(key)
        return run is not None and run.status.phase is None

    queue = partial(WorkQueue, standing_by=True)
    return Queues(
        runs=queue(kind="run", urgent=is_new), environments=queue(kind="environment"), runtimes=queue(kind="runtime")
    )


def _bundled_images(settings: OperatorSettings) -> frozenset[str]:
    if settings.bundled_image:
        return frozenset({settings.bundled_image})
    return frozenset(runtime.spec.image for runtime in bundled_runtimes().values())


# --- the pollers of metrics, over the caches -------------------------------------------------------------------------
def polled_metrics(
    caches: Caches, settings: OperatorSettings, changed: Callable[[PodObservation], None], env_vars: Mapping[str, str]
) -> PolledMetrics:
    """Trainers are always polled; W&B only with a key: not a setting, so that it appears in no argument and no log."""
    trainers = TrainerPoller(lambda: tuple(caches.live_pods.values()), changed, interval_seconds=settings.poll_seconds)
    key = env_vars.get(WANDB_API_KEY, "").strip()
    if not key:
        return PolledMetrics(trainers)
    runs = partial(asked_runs, caches, trainers)
    return PolledMetrics(trainers, WandbPoller(runs, changed, key=key, interval_seconds=settings.wandb_seconds))


def asked_runs(caches: Caches, trainers: TrainerPoller) -> Iterator[AskedRun]:
    """The runs whose trainer runs, and whose W&B project is known."""
    for pod in tuple(caches.live_pods.values()):
        if pod.component != TRAINING_COMPONENT or pod.over or not pod.address:
            continue
        run = caches.runs.get((pod.namespace, pod.run_name))
        if run is None or run.status.finished:
            continue
        if run.metadata.uid != pod.run_uid or run.status.pod_name != pod.name:
            continue
        runtime = caches.runtimes.get(("", run.spec.runtime))
        place = place_of(run, runtime) if isinstance(runtime, Runtime) else None
        if place is not None:
            wanted = trainers.unreachable(pod) and is_current(run)
            yield AskedRun(pod, run.metadata.uid, place, metrics_wanted=wanted)
