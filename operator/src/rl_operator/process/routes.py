"""Which event adds which keys to which queue. Nothing here waits, calls or decides."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.names import OWN_PREFIX
from rl_operator.api.runtime import Runtime
from rl_operator.api.training_run import TrainingRun
from rl_operator.cluster.api_server.client import WatchEvent
from rl_operator.cluster.cache.caches import Caches, Changes
from rl_operator.cluster.cache.queue import WorkQueue
from rl_operator.cluster.cache.resource_cache import Key, ResourceCache, Value, key_of
from rl_operator.status.attempt.pod_cleanup import expires_at
from rl_operator.status.attempt.run_admission import order_of
from rl_operator.status.observed.observation import PodObservation

RawEvent = WatchEvent[Manifest]


@dataclass(frozen=True, slots=True)
class Queues:
    """One per kind."""

    runs: WorkQueue
    environments: WorkQueue
    runtimes: WorkQueue

    @property
    def all(self) -> tuple[WorkQueue, ...]:
        return self.runs, self.environments, self.runtimes


class Routes:
    """`position_seconds`: how soon a waiting run with a new position is looked at; none starts later for it."""

    def __init__(self, caches: Caches, queues: Queues, *, position_seconds: float = 60.0) -> None:
        self._caches = caches
        self._queues = queues
        caches.runtime_queues.on_change(
            start=queues.runs.add, moved=lambda key: queues.runs.add_after(key, position_seconds)
        )

    # --- kopf's events: projected into the cache, then queued ----------------------------------------------------
    def run_event(self, event: RawEvent) -> None:
        if _take(self._caches.runs, event):
            self._run_changed(key_of(event["object"]))

    def _run_changed(self, key: Key) -> None:
        self._queues.runs.add(key)
        run = self._caches.runs.get(key)
        if run is None or run.status.finished or run.status.phase is None:  # gone, over or new: its children matter
            for child in self._caches.unstarted.begin_from(key):
                self._queues.runs.add(child)

    def environment_event(self, event: RawEvent) -> None:
        if _take(self._caches.environments, event):
            self._environment_changed(key_of(event["object"]))

    def _environment_changed(self, key: Key) -> None:
        """Also the runs that a new or fixed environment may let start."""
        namespace, name = key
        self._queues.environments.add(key)
        own = f"{OWN_PREFIX}{name}"
        self._wake(r for r in self._caches.unstarted if r.metadata.namespace == namespace and r.spec.environment == own)

    def runtime_event(self, event: RawEvent) -> None:
        if _take(self._caches.runtimes, event):
            self._runtime_changed(key_of(event["object"]))

    def _runtime_changed(self, key: Key) -> None:
        """Also the runs that a new or fixed runtime, or another limit, may let start."""
        self._queues.runtimes.add(key)
        self._wake(run for run in self._caches.unstarted if run.spec.runtime == key[1])
        for waiting in self._caches.runtime_queues.waiting(key[1]):
            self._queues.runs.add(waiting)

    def listed(self, changes: Changes) -> None:
        """What a list brought that kopf's watch had not reported, and what it never reports: objects that vanished."""
        for keys, changed in (
            (changes.runtimes, self._runtime_changed),
            (changes.environments, self._environment_changed),
            (changes.runs, self._run_changed),
        ):
            for key in sorted(keys):
                changed(key)

    # --- our informers and pollers ------------------------------------------------------------------------------
    def namespace_changed(self, key: Key) -> None:
        """Its labels decide which runtimes it may use."""
        self._wake(run for run in self._caches.unstarted if run.metadata.namespace == key[1])

    def catalog_changed(self, image: str) -> None:
        """Every runtime of that image records it; the change of its status queues its runs."""
        for runtime in self._caches.runtimes:
            if isinstance(runtime, Runtime) and runtime.spec.image_of_environments == image:
                self._queues.runtimes.add(("", runtime.metadata.name))

    def metrics_changed(self, pod: PodObservation) -> None:
        self._queues.runs.add((pod.namespace, pod.run_name))

    def add_all(self, spread_seconds: float) -> None:
        """Everything that is not finished, in queue order, and finished runs that still have pods."""
        unfinished = sorted((run for run in self._caches.runs if not run.status.finished), key=order_of)
        runs = dict.fromkeys([*(run.key for run in unfinished), *self._caches.pods.runs()])
        keys: tuple[tuple[WorkQueue, Iterable[Key]], ...] = (
            (self._queues.runtimes, [("", name) for name in self._caches.runtimes.names()]),
            (self._queues.environments, [environment.key for environment in self._caches.environments]),
            (self._queues.runs, runs),
        )
        for queue, members in keys:
            for key in members:
                queue.add_after(key, random.uniform(0.0, spread_seconds))  # noqa: S311 -- spread, not a secret

    def add_expiring(self) -> None:
        """Finished runs that will be deleted at some time: from then on each has a timer, and is not scanned for."""
        for run in self._caches.runs:
            if expires_at(run):
                self._queues.runs.add(run.key)

    def _wake(self, runs: Iterable[TrainingRun]) -> None:
        for run in runs:
            self._queues.runs.add(run.key)


def _take(store: ResourceCache[Manifest, Value], event: RawEvent) -> bool:
    document = event["object"]
    changed = store.remove(document) if event["type"] == "DELETED" else store.put(document)
    store.watched(int(document["metadata"]["resourceVersion"]))
    return changed
