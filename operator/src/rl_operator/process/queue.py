"""The work queues, one for each kind, and which event adds which keys to which of them.

A queue has each key once, urgent ones first, bounded concurrency, and retries failures with growing pauses.
"""

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.names import ENVIRONMENT_PLURAL, OWN_PREFIX, RUN_PLURAL, RUNTIME_PLURAL
from rl_operator.api.runtime import Runtime
from rl_operator.api.training_run import TrainingRun
from rl_operator.backoff import backoff, jittered
from rl_operator.cluster.api_server.client import WatchEvent
from rl_operator.cluster.cache.caches import Caches
from rl_operator.cluster.cache.resource_cache import Key
from rl_operator.operator_errors import ConflictError, GoneError, OperatorError
from rl_operator.status.attempt.pod_cleanup import expires_at
from rl_operator.status.observed.observation import PodObservation
from rl_operator.telemetry import RECONCILE_SECONDS, RECONCILES

log = logging.getLogger(__name__)

Reconcile = Callable[[Key], Awaitable[float | None]]
"""One reconcile; returns after how many seconds it wants to be called again, if at all."""

HEAD_START_SECONDS = 10.0
"""An urgent key is taken before those that were added up to so much earlier: no key waits longer for urgent ones."""

FIRST_PAUSE_SECONDS = 0.25
MAX_PAUSE_SECONDS = 300.0


class WorkQueue:
    """Never runs one key twice at once; a key added while it runs is run once more afterwards."""

    def __init__(
        self,
        *,
        kind: str = "run",
        deadline_seconds: float = 60.0,
        standing_by: bool = False,
        urgent: Callable[[Key], bool] = lambda _: False,
    ) -> None:
        """`standing_by`: keys are ignored until `begin`, because the process that begins looks at everything. `urgent`
        is asked about each key that is added.
        """
        self._kind = kind
        self._deadline = deadline_seconds
        self._standing_by = standing_by
        self._urgent = urgent
        self._ready: asyncio.PriorityQueue[tuple[float, int, Key]] = asyncio.PriorityQueue()
        self._added = itertools.count()
        """Among equals, the first one first."""
        self._waiting: dict[Key, float] = {}
        """When each was added, the oldest first."""
        self._ended_at = time.monotonic()
        self._running: dict[Key, float] = {}
        self._again: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}

    @property
    def kind(self) -> str:
        return self._kind

    def begin(self) -> None:
        self._standing_by = False

    def add(self, key: Key) -> None:
        """Run the key as soon as a worker is free."""
        self._cancel_timer(key)
        if key in self._running:
            self._again.add(key)
        elif key not in self._waiting and not self._standing_by:
            self._waiting[key] = now = time.monotonic()
            self._ready.put_nowait((now - HEAD_START_SECONDS * self._urgent(key), next(self._added), key))

    def add_after(self, key: Key, seconds: float) -> None:
        """Run the key in that many seconds, unless something is due sooner."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if self._standing_by or key in self._waiting or (timer and timer.when() <= loop.time() + seconds):
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_later(seconds, self.add, key)

    # --- read by probes and scrapes -----------------------------------------------------------------------------
    @property
    def depth(self) -> int:
        return len(self._waiting)

    def oldest_waiting_seconds(self) -> float:
        """How long the key at the head of the queue has waited for a worker."""
        now = time.monotonic()
        return now - next(iter(self._waiting.values()), now)

    def longest_running_seconds(self) -> float:
        """How long the oldest reconcile in progress has taken so far."""
        return time.monotonic() - min(self._running.values(), default=time.monotonic())

    def standstill_seconds(self) -> float:
        """How long keys have been waiting without any reconcile finishing."""
        return min(self.oldest_waiting_seconds(), time.monotonic() - self._ended_at)

    async def work(self, reconcile: Reconcile) -> None:
        """One worker: start as many as runs may be reconciled concurrently. Ends only by cancellation."""
        while True:
            _, _, key = await self._ready.get()
            del self._waiting[key]
            self._running[key] = time.monotonic()
            try:
                await self._attempt(key, reconcile)
            finally:
                self._ended_at = time.monotonic()
                RECONCILE_SECONDS.labels(self._kind).observe(self._ended_at - self._running.pop(key))
            if key in self._again:
                self._again.discard(key)
                self.add(key)

    async def _attempt(self, key: Key, reconcile: Reconcile) -> None:
        try:
            async with asyncio.timeout(self._deadline):
                wish = await reconcile(key)
        except (ConflictError, GoneError) as error:
            # The cache was behind; the newer version is on its way or already there.
            self._try_again(key, "conflict", logging.DEBUG, error)
        except OperatorError as error:
            self._try_again(key, "error", logging.WARNING, error)
        except TimeoutError:
            self._try_again(key, "timeout", logging.ERROR, f"took longer than {self._deadline:.0f} s")
        except Exception:  # noqa: BLE001 -- the loop's edge: one run's defect must not stop the others
            self._try_again(key, "defect", logging.ERROR, "failed unexpectedly", with_traceback=True)
        else:
            RECONCILES.labels(self._kind, "ok").inc()
            self._failures.pop(key, None)
            if wish is not None:
                self.add_after(key, wish)

    def _try_again(self, key: Key, outcome: str, level: int, cause: object, *, with_traceback: bool = False) -> None:
        RECONCILES.labels(self._kind, outcome).inc()
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        pause = jittered(backoff(failures + 1, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS), 0.2)
        name = "/".join(part for part in key if part)
        log.log(level, "%s %s: %s; again in %.1f s", self._kind, name, cause, pause, exc_info=with_traceback)
        self.add_after(key, pause)

    def _cancel_timer(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer:
            timer.cancel()


RawEvent = WatchEvent[Manifest]


@dataclass(frozen=True, slots=True)
class Queues:
    runs: WorkQueue
    environments: WorkQueue
    runtimes: WorkQueue

    @property
    def all(self) -> tuple[WorkQueue, ...]:
        return self.runs, self.environments, self.runtimes


class Routes:
    """Nothing here waits, calls or decides. `position_seconds`: how soon a waiting run with a new position is looked
    at; none starts later for it.
    """

    def __init__(self, caches: Caches, queues: Queues, *, position_seconds: float = 60.0) -> None:
        self._caches = caches
        self._queues = queues
        self._changed: dict[str, Callable[[Key], None]] = {
            RUN_PLURAL: self._run_changed,
            RUNTIME_PLURAL: self._runtime_changed,
            ENVIRONMENT_PLURAL: self._environment_changed,
        }
        caches.runtime_queues.on_change(
            start=queues.runs.add, moved=lambda key: queues.runs.add_after(key, position_seconds)
        )

    # --- our kinds ----------------------------------------------------------------------------------------------
    def take(self, plural: str, event: RawEvent) -> None:
        """What kopf's watch reports."""
        if key := self._caches.own_kinds[plural].apply(event):
            self.changed(plural, key)

    def changed(self, plural: str, key: Key) -> None:
        """Also what a list brought that the watch had not reported, and what it never reports: what vanished."""
        self._changed[plural](key)

    def _run_changed(self, key: Key) -> None:
        self._queues.runs.add(key)
        run = self._caches.runs.get(key)
        if run is None or run.status.finished or run.status.phase is None:  # gone, over or new: its children matter
            for child in self._caches.unstarted.begin_from(key):
                self._queues.runs.add(child)

    def _environment_changed(self, key: Key) -> None:
        """Also the runs that a new or fixed environment may let start."""
        namespace, name = key
        self._queues.environments.add(key)
        own = f"{OWN_PREFIX}{name}"
        self._wake(r for r in self._caches.unstarted if r.metadata.namespace == namespace and r.spec.environment == own)

    def _runtime_changed(self, key: Key) -> None:
        """Also the runs that a new or fixed runtime, or another limit, may let start."""
        self._queues.runtimes.add(key)
        self._wake(run for run in self._caches.unstarted if run.spec.runtime == key[1])
        for waiting in self._caches.runtime_queues.waiting(key[1]):
            self._queues.runs.add(waiting)

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
        order_of = self._caches.runtime_queues.order_of
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
