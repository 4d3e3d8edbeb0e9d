"""The operator: its parts put together, started in order, stopped together."""

import asyncio
import logging
import random
import signal
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import kopf
from prometheus_client import start_http_server

from rl_operator.api.names import MANAGED_BY_LABEL, MANAGER, RUN_LABEL
from rl_operator.cluster.caches import Caches, list_own_kinds
from rl_operator.cluster.client import METADATA_ONLY, ClusterClient
from rl_operator.cluster.events import EventRecorder
from rl_operator.cluster.informer import Informer
from rl_operator.cluster.queue import WorkQueue
from rl_operator.cluster.resources import CONFIG_MAPS, PODS, Resource
from rl_operator.cluster.store import Store, key_of
from rl_operator.cluster.world import ClusterWorld
from rl_operator.errors import BackEndUnreachableError, OperatorError
from rl_operator.handlers.kinds import require_kinds, with_patience
from rl_operator.handlers.shell import build_registry
from rl_operator.metrics.trainer import TrainerPoller
from rl_operator.reconcile.reconcile import Pace, reconcile
from rl_operator.settings import OperatorSettings
from rl_operator.status.observation import PodObservation

log = logging.getLogger(__name__)

SYNC_SECONDS = 60.0
STUCK_SECONDS = 300.0
CHILDREN_SELECTOR = f"{MANAGED_BY_LABEL}={MANAGER},{RUN_LABEL}"


class Operator:
    """All parts of the process, wired. Keeps nothing that the API server does not have."""

    def __init__(self, client: ClusterClient, settings: OperatorSettings) -> None:
        self._settings = settings
        self._client = client
        self._namespace = settings.namespace or None
        self._over = asyncio.Event()
        self._stop_asked = False
        self.caches = Caches()
        self._recorder = EventRecorder(client)
        self._poller = TrainerPoller(
            lambda: [pod.observation for pod in self.caches.pods],
            self._figures_changed,
            interval_seconds=settings.poll_seconds,
        )
        world = ClusterWorld(client, self.caches, self._recorder, self._poller.status_of)
        pace = Pace(settings.backoff_seconds, settings.progress_seconds)
        work = partial(reconcile, world=world, clock=lambda: datetime.now(UTC), pace=pace)
        self.queue = WorkQueue(work)
        self._informers = (
            self._informer(PODS, self.caches.pods, "application/json"),
            self._informer(CONFIG_MAPS, self.caches.config_maps, METADATA_ONLY),
        )

    def _informer(self, resource: Resource, store: Store[Any], accept: str) -> Informer[Any]:
        return Informer(
            self._client,
            resource,
            store,
            self.queue.add,
            namespace=self._namespace,
            selector=CHILDREN_SELECTOR,
            accept=accept,
        )

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Nothing is reconciled before all caches are complete."""
        async with asyncio.TaskGroup() as group:
            await with_patience(self._list_own_kinds, self._settings.connect_seconds)
            # One after the other: lists that are read side by side cost memory that is never given back.
            tasks = [await self._synced(group, informer) for informer in self._informers]
            self._add_all(spread_seconds=0.0)
            # kopf waits for every task that began after it, and then ends it: these begin before.
            workers = [self.queue.work() for _ in range(self._settings.workers)]
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
            run_event=self.run_event,
            runtime_event=self.runtime_event,
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
            self._add_all(spread_seconds=interval / 10)

    async def _list_own_kinds(self) -> None:
        await list_own_kinds(self._client, self.caches, self._namespace)

    def _add_all(self, spread_seconds: float) -> None:
        unfinished = {run.key for run in self.caches.runs if not run.status.finished}
        for key in unfinished | set(self.caches.pods.runs()):
            self.queue.add_after(key, random.uniform(0.0, spread_seconds))  # noqa: S311 -- spread, no secret

    def _figures_changed(self, pod: PodObservation) -> None:
        self.queue.add((pod.namespace, pod.run_name))

    # --- kopf's events ------------------------------------------------------------------------------------------
    def run_event(self, event: Mapping[str, Any]) -> None:
        """Project the run into the cache and enqueue its key."""
        if _take(self.caches.runs, event):
            self.queue.add(key_of(event["object"]))

    def runtime_event(self, event: Mapping[str, Any]) -> None:
        """Enqueue the runs that a new or mended runtime may let start."""
        if not _take(self.caches.runtimes, event):
            return
        name = event["object"]["metadata"]["name"]
        for run in self.caches.runs:
            if run.spec.runtime == name and not run.status.finished and run.status.start_time is None:
                self.queue.add(run.key)

    def trouble(self) -> str | None:
        """What is stuck, for the liveness probe. An API server that is away is no reason to be restarted."""
        silent = time.monotonic() - min(informer.active_at for informer in self._informers)
        if silent > STUCK_SECONDS:
            return f"the watch of pods or ConfigMaps has done nothing for {silent:.0f} s"
        longest = self.queue.longest_running_seconds()
        return f"a reconcile has been running for {longest:.0f} s" if longest > STUCK_SECONDS else None


def _take(store: Store[Any], event: Mapping[str, Any]) -> bool:
    document: dict[str, Any] = event["object"]
    changed = store.remove(document) if event["type"] == "DELETED" else store.put(document)
    store.watched(int(document["metadata"]["resourceVersion"]))
    return changed


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
