"""The operator: its parts put together, started in order, stopped together."""

import asyncio
import logging
import random
import signal
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import kopf
from prometheus_client import start_http_server

from rl_operator.api.bundled import bundled_runtimes
from rl_operator.api.names import (
    ENVIRONMENT_PLURAL,
    MANAGED_BY_LABEL,
    MANAGER,
    RUN_LABEL,
    RUN_PLURAL,
    RUNTIME_PLURAL,
)
from rl_operator.cluster.caches import Caches, list_catalogues, list_own_kinds
from rl_operator.cluster.catalogues import Catalogues
from rl_operator.cluster.client import JSON, METADATA_ONLY, ClusterClient
from rl_operator.cluster.context import own_namespace
from rl_operator.cluster.events import EventRecorder
from rl_operator.cluster.informer import Informer
from rl_operator.cluster.kinds_world import KindsWorld
from rl_operator.cluster.queue import WorkQueue
from rl_operator.cluster.resources import CHILDREN, NAMESPACES
from rl_operator.cluster.store import Key
from rl_operator.cluster.world import ClusterWorld
from rl_operator.errors import BackEndUnreachableError, OperatorError
from rl_operator.handlers.kinds import require_kinds, with_patience
from rl_operator.handlers.routes import Queues, Routes
from rl_operator.handlers.shell import build_registry
from rl_operator.metrics.trainer import TrainerPoller
from rl_operator.reconcile.environment_kind import reconcile_environment
from rl_operator.reconcile.reconcile import Pace, reconcile
from rl_operator.reconcile.runtime_kind import reconcile_runtime
from rl_operator.settings import OperatorSettings
from rl_operator.status.observation import PodObservation

log = logging.getLogger(__name__)

SYNC_SECONDS = 60.0
STUCK_SECONDS = 300.0
ENVIRONMENT_WORKERS = 2
"""Reading code takes a process of its own each time."""
CHILDREN_SELECTOR = f"{MANAGED_BY_LABEL}={MANAGER},{RUN_LABEL}"


class Operator:
    """All parts of the process, wired. Keeps nothing that the API server does not have."""

    def __init__(self, client: ClusterClient, settings: OperatorSettings) -> None:
        self._settings = settings
        self._client = client
        self._namespace = settings.namespace or None
        self._own_namespace = settings.operator_namespace or own_namespace()
        self._over = asyncio.Event()
        self._stop_asked = False
        self._all_added = False
        self.caches = Caches(Catalogues(_bundled_images(settings)))
        self._recorder = EventRecorder(client)
        self._poller = TrainerPoller(
            lambda: [pod.observation for pod in self.caches.pods],
            self._figures_changed,
            interval_seconds=settings.poll_seconds,
        )
        self.queues = self._queues()
        self.routes = Routes(self.caches, self.queues)
        self._informers = tuple(self._children_informers())
        if self._namespace is None:
            self._informers += (
                Informer(client, NAMESPACES, self.caches.namespaces, self._namespace_changed, accept=METADATA_ONLY),
            )

    def _queues(self) -> Queues:
        """A queue per kind. One runtime at a time: those of one image share its reading."""
        clock = partial(datetime.now, UTC)
        world = ClusterWorld(self._client, self.caches, self._recorder, self._poller.status_of)
        kinds = KindsWorld(self._client, self.caches, self._recorder, self._catalogue_changed)
        pace = Pace(self._settings.backoff_seconds, self._settings.progress_seconds)
        namespace = self._own_namespace
        return Queues(
            runs=WorkQueue(partial(reconcile, world=world, clock=clock, pace=pace), kind="run"),
            environments=WorkQueue(partial(reconcile_environment, world=kinds, clock=clock), kind="environment"),
            runtimes=WorkQueue(
                partial(reconcile_runtime, world=kinds, clock=clock, namespace=namespace), kind="runtime"
            ),
        )

    def _children_informers(self) -> Iterator[Informer[Any]]:
        """Of what is not a pod only the existence matters."""
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

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Nothing is reconciled before all caches are complete."""
        async with asyncio.TaskGroup() as group:
            await with_patience(self._list_at_start, self._settings.connect_seconds)
            # One after the other: lists that are read side by side cost memory that is never given back.
            tasks = [await self._synced(group, informer) for informer in self._informers]
            self.routes.add_all(spread_seconds=0.0)
            self._all_added = True
            # kopf waits for every task that began after it, and then ends it: these begin before.
            workers = [self.queues.runs.work() for _ in range(self._settings.workers)]
            workers += [self.queues.environments.work() for _ in range(ENVIRONMENT_WORKERS)]
            workers.append(self.queues.runtimes.work())
            background = (*workers, self._recorder.run(), self._poller.run(), self._resync())
            tasks += [group.create_task(part) for part in background]
            self._take_signals()
            log.info("ready: %d runs, %d runtimes", len(self.caches.runs), len(self.caches.runtimes))
            await self._serve()
            for task in tasks:
                task.cancel()

    async def _synced(self, group: asyncio.TaskGroup, informer: Informer[Any]) -> asyncio.Task[None]:
        """Start an informer and wait for its first complete list."""
        task = group.create_task(informer.run())
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                await informer.wait_synced()
        except TimeoutError as error:
            raise BackEndUnreachableError(f"{informer.what} could not be listed within {SYNC_SECONDS:.0f} s") from error
        return task

    async def _serve(self) -> None:
        """Let kopf serve. When it ends by itself, the API server may say why in one sentence."""
        try:
            await self._run_kopf()
        except Exception:
            if self._stop_asked:
                log.debug("kopf was stopped while it started", exc_info=True)
                return
            await require_kinds(self._client)
            raise
        finally:
            asyncio.get_running_loop().set_exception_handler(_note_leftover)
        if not self._stop_asked:
            await require_kinds(self._client)

    def _take_signals(self) -> None:
        """Before kopf's own handlers, which come late, and in their place: they leave no trace of having been asked."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._ask_to_stop)

    def _ask_to_stop(self) -> None:
        self._stop_asked = True
        self._over.set()

    async def _run_kopf(self) -> None:
        settings = self._settings
        registry = build_registry(
            self._client,
            events={
                RUN_PLURAL: self.routes.run_event,
                RUNTIME_PLURAL: self.routes.runtime_event,
                ENVIRONMENT_PLURAL: self.routes.environment_event,
            },
            trouble=self.trouble,
            refused=self._over.set,
        )
        probe = f"http://{settings.probe_host}:{settings.probe_port}/healthz" if settings.probe_port else None
        ours = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            registry=registry,
            clusterwide=self._namespace is None,
            namespaces=[self._namespace] if self._namespace else [],
            liveness_endpoint=probe,
            identity=MANAGER,  # kopf's default asks for the user's name, which an unprivileged uid does not have
            stop_flag=self._over,
        )
        self._take_signals()
        await kopf.run_tasks(tasks, ignored=ours)

    async def _resync(self) -> None:
        """Look at everything again now and then: a bug or a lost event costs minutes, not a run."""
        while True:
            interval = self._settings.resync_seconds
            await asyncio.sleep(interval * random.uniform(0.8, 1.2))  # noqa: S311 -- jitter, no secret
            try:
                await self._list_own_kinds()
            except OperatorError as error:
                log.warning("resync: %s", error)
            self.routes.add_all(spread_seconds=interval / 10)

    async def _list_at_start(self) -> None:
        await self._list_own_kinds()
        await list_catalogues(self._client, self.caches.catalogues, self._own_namespace)

    async def _list_own_kinds(self) -> None:
        await list_own_kinds(self._client, self.caches, self._namespace)

    # Named here because queues and routes need each other.
    def _figures_changed(self, pod: PodObservation) -> None:
        self.routes.figures_changed(pod)

    def _catalogue_changed(self, image: str) -> None:
        self.routes.catalogue_changed(image)

    def _namespace_changed(self, key: Key) -> None:
        """Each of them looks through all runs: at the start, when all namespaces are new, that would be for nothing."""
        if self._all_added:
            self.routes.namespace_changed(key)

    def trouble(self) -> str | None:
        """What is stuck, for the liveness probe. An API server that is away is no reason to be restarted."""
        quietest = min(self._informers, key=lambda informer: informer.active_at)
        silent = time.monotonic() - quietest.active_at
        if silent > STUCK_SECONDS:
            return f"the watch of {quietest.what} has done nothing for {silent:.0f} s"
        longest = max(queue.longest_running_seconds() for queue in self.queues.all)
        return f"a reconcile has been running for {longest:.0f} s" if longest > STUCK_SECONDS else None


def _bundled_images(settings: OperatorSettings) -> frozenset[str]:
    """Images whose catalogue came with this package."""
    if settings.bundled_image:
        return frozenset({settings.bundled_image})
    return frozenset(runtime.spec.image for runtime in bundled_runtimes().values())


def _note_leftover(_loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """What abandoned tasks of kopf raised: asyncio would print tracebacks after our last sentence."""
    log.debug("left by kopf: %s", context["message"], exc_info=context.get("exception"))


async def run_operator(settings: OperatorSettings) -> None:
    """The whole process. Raises OperatorErrors when the cluster cannot be served."""
    client = await ClusterClient.connect(settings.kubeconfig, settings.context, settings.request_seconds)
    async with client:
        await with_patience(partial(require_kinds, client), settings.connect_seconds)
        if settings.metrics_port:
            start_http_server(settings.metrics_port, settings.metrics_host)
        await Operator(client, settings).run()
