"""The parts of the operator, made and connected: what each calls in the others.

The queues come first and know nobody: their workers are told what to do with a key. Whatever changes calls a route,
and routes add keys to queues.
"""

import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from rl_contract.env_vars import WANDB_API_KEY
from rl_operator.api.names import MANAGED_BY_LABEL, MANAGER, RUN_LABEL, TRAINING_COMPONENT
from rl_operator.api.runtime import Runtime
from rl_operator.cluster.api_server.client import JSON, METADATA_ONLY, ClusterClient
from rl_operator.cluster.api_server.event_recorder import EventRecorder
from rl_operator.cluster.api_server.request_guard import WatchAges
from rl_operator.cluster.api_server.resources import CHILDREN, NAMESPACES
from rl_operator.cluster.cache.caches import Caches, Catalogs
from rl_operator.cluster.cache.informer import Informer
from rl_operator.cluster.cache.queue import WorkQueue
from rl_operator.cluster.cache.resource_cache import Key
from rl_operator.cluster.cluster_run_client import ClusterRunClient
from rl_operator.cluster.kinds_client import KindsClient
from rl_operator.documents.shipped import bundled_runtimes
from rl_operator.metrics.metrics_source import PolledMetrics
from rl_operator.metrics.trainer_poller import TrainerPoller
from rl_operator.metrics.wandb_poller import AskedRun, WandbPoller
from rl_operator.metrics.wandb_query import place_of
from rl_operator.operator_settings import OperatorSettings
from rl_operator.process.process_health import ProcessHealth
from rl_operator.process.routes import Queues, Routes
from rl_operator.reconcile.reconcile import ReconcilePace, reconcile
from rl_operator.reconcile.reconcile_kinds import reconcile_environment, reconcile_runtime
from rl_operator.status.observed.observation import PodObservation
from rl_operator.status.observed.wandb_run import is_current

ENVIRONMENT_WORKERS = 2
"""Each reading of code takes its own process."""
CHILDREN_SELECTOR = f"{MANAGED_BY_LABEL}={MANAGER},{RUN_LABEL}"
"""The operator's own key: not a setting, so that it appears in no argument and no log."""

Part = Callable[[], Coroutine[Any, Any, None]]
"""What runs until it is cancelled."""


@dataclass(frozen=True, slots=True)
class OperatorParts:
    """`informers` run from the start; `working`, the parts that write, once this process is the one that works."""

    caches: Caches
    queues: Queues
    routes: Routes
    health: ProcessHealth
    run_client: ClusterRunClient
    informers: tuple[Informer[Any, Any], ...]
    working: tuple[Part, ...]


def assemble(
    client: ClusterClient, settings: OperatorSettings, ages: WatchAges, namespace: str, works: Callable[[], bool]
) -> OperatorParts:
    """`namespace`: the operator's own. `works`: whether this process is the one that works already."""
    caches = Caches(Catalogs(_bundled_images(settings)))
    queues = _queues(caches)
    routes = Routes(caches, queues, position_seconds=settings.progress_seconds)
    recorder = EventRecorder(client, busy=lambda: queues.runs.depth > 0)
    metrics = polled_metrics(caches, settings, routes.metrics_changed, os.environ)
    run_client = ClusterRunClient(client, caches, recorder, metrics)
    kinds_client = KindsClient(client, caches, recorder, routes.catalog_changed)
    return OperatorParts(
        caches=caches,
        queues=queues,
        routes=routes,
        health=ProcessHealth(caches, queues, ages, stuck_seconds=settings.stuck_seconds),
        run_client=run_client,
        informers=tuple(
            _informers(client, caches, routes, settings.namespace or None, run_changed=queues.runs.add, works=works)
        ),
        working=(
            *_workers(queues, settings, namespace, client.clock.now, run_client=run_client, kinds_client=kinds_client),
            recorder.run,
            metrics.run,
        ),
    )


def _queues(caches: Caches) -> Queues:
    def is_new(key: Key) -> bool:
        """A run that nothing was said about yet starts before others are looked at again."""
        run = caches.runs.get(key)
        return run is not None and run.status.phase is None

    queue = partial(WorkQueue, standing_by=True)
    return Queues(
        runs=queue(kind="run", urgent=is_new), environments=queue(kind="environment"), runtimes=queue(kind="runtime")
    )


def _workers(
    queues: Queues,
    settings: OperatorSettings,
    namespace: str,
    clock: Callable[[], datetime],
    *,
    run_client: ClusterRunClient,
    kinds_client: KindsClient,
) -> Iterator[Part]:
    """One runtime at a time: runtimes with the same image share its reading."""
    pace = ReconcilePace(settings.backoff_seconds, settings.progress_seconds)
    of_run = partial(reconcile, client=run_client, clock=clock, pace=pace)
    of_environment = partial(reconcile_environment, client=kinds_client, clock=clock)
    of_runtime = partial(reconcile_runtime, client=kinds_client, clock=clock, namespace=namespace)
    yield from [partial(queues.runs.work, of_run)] * settings.workers
    yield from [partial(queues.environments.work, of_environment)] * ENVIRONMENT_WORKERS
    yield partial(queues.runtimes.work, of_runtime)


def _informers(
    client: ClusterClient,
    caches: Caches,
    routes: Routes,
    namespace: str | None,
    *,
    run_changed: Callable[[Key], None],
    works: Callable[[], bool],
) -> Iterator[Informer[Any, Any]]:
    """Informers of what runs own: only existence matters, except for pods. Namespaces: unless one alone is served."""
    for kind, store in caches.children.items():
        yield Informer(
            client,
            CHILDREN[kind],
            store,
            run_changed,
            namespace=namespace,
            selector=CHILDREN_SELECTOR,
            accept=JSON if kind == "Pod" else METADATA_ONLY,
        )

    def namespace_changed(key: Key) -> None:
        """Each of them scans all runs: at the start, when all namespaces are new, that would be wasted."""
        if works():
            routes.namespace_changed(key)

    if namespace is None:
        yield Informer(client, NAMESPACES, caches.namespaces, namespace_changed, accept=METADATA_ONLY)


def _bundled_images(settings: OperatorSettings) -> frozenset[str]:
    """Images whose catalog came with this package."""
    if settings.bundled_image:
        return frozenset({settings.bundled_image})
    return frozenset(runtime.spec.image for runtime in bundled_runtimes().values())


# --- the pollers of metrics, over the caches -------------------------------------------------------------------------
def polled_metrics(
    caches: Caches,
    settings: OperatorSettings,
    changed: Callable[[PodObservation], None],
    env_vars: Mapping[str, str],
) -> PolledMetrics:
    """Trainers are always polled; W&B only with a key."""
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
