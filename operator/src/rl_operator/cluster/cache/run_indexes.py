"""Indexes over the cache of runs, updated by its changes: none of them costs a scan of all runs.

`RuntimeQueues`: the slots of runtimes that limit their active runs: which runs hold one, which wait, and which to wake.
The rule itself is in `status/attempt/run_admission.py`. A claim holds a run's slot between the decision to start it
and the cache's update: without it, concurrent reconciles would all take the last slot.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from rl_operator.api.training_run import TrainingRun
from rl_operator.cluster.cache.resource_cache import Key
from rl_operator.operator_errors import ConflictError, TargetUnreachableError
from rl_operator.status.attempt.run_admission import Order, holds_slot, order_of, positions_with_news, waits_in_queue
from rl_operator.status.attempt.view import QueuePosition

OnChange = Callable[[Key], None]


class QueueState(Enum):
    HOLDS = "holds a slot"
    CLAIMS = "is being started"
    WAITS = "waits"


@dataclass(frozen=True, slots=True)
class QueueEntry:
    runtime: str
    state: QueueState
    order: Order


@dataclass(slots=True)
class _Runtime:
    """`waiting` is sorted; `taken` counts the slots that are held or claimed."""

    taken: int = 0
    waiting: list[Order] = field(default_factory=list)


def _ignore(_: Key) -> None:
    """The default: no subscriber."""


class RuntimeQueues:
    """`limit_of` returns a runtime's `limits.maxActiveRuns`; None: it has none."""

    def __init__(self, limit_of: Callable[[str], int | None]) -> None:
        self._limit_of = limit_of
        self._entries: dict[Key, QueueEntry] = {}
        self._claimed: dict[Key, QueueEntry | None] = {}
        """The cached state of the runs that claim a slot."""

        self._runtimes: defaultdict[str, _Runtime] = defaultdict(_Runtime)
        self._start: OnChange = _ignore
        self._moved: OnChange = _ignore

    def on_change(self, *, start: OnChange, moved: OnChange) -> None:
        """From now on: `start` is called for a run that may start as far as is known here, `moved` for a waiting one
        whose displayed position changed.
        """
        self._start, self._moved = start, moved

    # --- questions ----------------------------------------------------------------------------------------------
    def queue_position(self, run: TrainingRun) -> QueuePosition | None:
        """The run's position among the others, or the one it would have if it waited."""
        limit = self._limit_of(run.spec.runtime)
        if limit is None:
            return None
        runtime, own = self._runtimes[run.spec.runtime], self._entries.get(run.key)
        taken = runtime.taken - (own is not None and own.state is not QueueState.WAITS)
        return QueuePosition(limit, taken, bisect_left(runtime.waiting, order_of(run)))

    def waiting(self, runtime: str) -> tuple[Key, ...]:
        return tuple(_key(order) for order in self._runtimes[runtime].waiting)

    def counts(self) -> Iterator[tuple[str, int, int, int | None]]:
        """For each runtime that runs name: its name, the slots taken, the runs that wait, its limit. For scrapes."""
        for name, runtime in self._runtimes.items():
            yield name, runtime.taken, len(runtime.waiting), self._limit_of(name)

    # --- changes ------------------------------------------------------------------------------------------------
    def changed(self, key: Key, run: TrainingRun | None) -> None:
        """The cache holds another version of a run, or none anymore. That settles its claim: what was decided on an
        older version has been written, or the API server rejects it.
        """
        self._claimed.pop(key, None)
        self._replace(key, _entry(run) if run else None)

    @contextmanager
    def claimed(self, run: TrainingRun) -> Iterator[None]:
        """Hold a slot while the run's start is written.

        If the outcome of the write is unknown, the claim stays until the cache has a newer version of the run: the next
        reconcile finds out. A waiting run whose start is refused leaves the queue until then: a run that cannot start
        must not hold up the others. One that holds a slot, between two attempts, keeps it.
        """
        key = run.key
        self._claimed.setdefault(key, self._entries.get(key))
        self._replace(key, QueueEntry(run.spec.runtime, QueueState.CLAIMS, order_of(run)))
        try:
            yield
        except TargetUnreachableError:
            raise
        except ConflictError:
            self._release_claim(key)
            raise
        except Exception:
            if key in self._claimed:
                before = self._claimed.pop(key)
                self._replace(key, before if before and before.state is QueueState.HOLDS else None)
            raise
        else:
            self._release_claim(key)

    def _release_claim(self, key: Key) -> None:
        if key in self._claimed:
            self._replace(key, self._claimed.pop(key))

    def _replace(self, key: Key, entry: QueueEntry | None) -> None:
        before = self._entries.pop(key, None)
        if entry:
            self._entries[key] = entry
        if before == entry:
            return
        if before:
            self._leave(before)
        if entry:
            self._join(entry)
        for name in {each.runtime for each in (before, entry) if each}:
            self.wake(name)

    def _join(self, entry: QueueEntry) -> None:
        runtime = self._runtimes[entry.runtime]
        if entry.state is not QueueState.WAITS:
            runtime.taken += 1
            return
        insort(runtime.waiting, entry.order)
        self._tell_moved(runtime.waiting, bisect_left(runtime.waiting, entry.order) + 1, up=False)

    def _leave(self, entry: QueueEntry) -> None:
        runtime = self._runtimes[entry.runtime]
        if entry.state is not QueueState.WAITS:
            runtime.taken -= 1
            return
        index = bisect_left(runtime.waiting, entry.order)
        del runtime.waiting[index]
        self._tell_moved(runtime.waiting, index, up=True)

    def wake(self, name: str) -> None:
        """Wake the runs at the head of a runtime's queue, as many as there are free slots."""
        runtime, limit = self._runtimes[name], self._limit_of(name)
        room = len(runtime.waiting) if limit is None else max(limit - runtime.taken, 0)
        for order in runtime.waiting[:room]:
            self._start(_key(order))

    def _tell_moved(self, waiting: list[Order], first: int, *, up: bool) -> None:
        """Wake the runs from index `first` on whose displayed position changed."""
        for position in positions_with_news(len(waiting), moved_up=up):
            if position > first:
                self._moved(_key(waiting[position - 1]))


def _entry(run: TrainingRun) -> QueueEntry | None:
    if holds_slot(run):
        return QueueEntry(run.spec.runtime, QueueState.HOLDS, order_of(run))
    return QueueEntry(run.spec.runtime, QueueState.WAITS, order_of(run)) if waits_in_queue(run) else None


def _key(order: Order) -> Key:
    return order[3], order[2]


class Unstarted:
    """Runs that have not started, and the runs whose weights they wait for."""

    def __init__(self) -> None:
        self._runs: dict[Key, TrainingRun] = {}
        self._children: defaultdict[Key, set[Key]] = defaultdict(set)

    def __iter__(self) -> Iterator[TrainingRun]:
        return iter(self._runs.values())

    def begin_from(self, parent: Key) -> tuple[Key, ...]:
        return tuple(sorted(self._children.get(parent, ())))

    def changed(self, key: Key, run: TrainingRun | None) -> None:
        """The cache holds another version of a run, or none anymore."""
        before = self._runs.pop(key, None)
        if before is not None and (parent := _parent(before)):
            self._children[parent].discard(key)
            if not self._children[parent]:
                del self._children[parent]
        if run is None or run.status.finished or run.status.attempt is not None:
            return
        self._runs[key] = run
        if parent := _parent(run):
            self._children[parent].add(key)


def _parent(run: TrainingRun) -> Key | None:
    start_from = run.spec.start_from
    return (run.metadata.namespace, start_from.run) if start_from and start_from.run else None
