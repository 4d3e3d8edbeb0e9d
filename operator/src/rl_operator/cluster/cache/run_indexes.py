"""Indexes over the cache of runs, updated by its changes: none of them costs a scan of all runs.

`RuntimeQueues`: the slots of runtimes that limit their active runs: which runs hold one, which wait, and which to wake.
A pod that still works and whose run is deleted or gone holds that slot until it is over, or counts as lost.
The rule itself is in `status/attempt/run_admission.py`. A claim holds a run's slot between the decision to start it
and the cache's update: without it, concurrent reconciles would all take the last slot.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from heapq import merge

from rl_operator.api.runtime import Limits
from rl_operator.api.training_run import TrainingRun
from rl_operator.cluster.cache.resource_cache import Key
from rl_operator.operator_errors import ConflictError, TargetUnreachableError
from rl_operator.status.attempt.run_admission import (
    Order,
    has_room,
    holds_slot,
    order_of,
    positions_with_news,
    waits_in_queue,
)
from rl_operator.status.attempt.view import QueuePosition
from rl_operator.status.observed.observation import PodObservation

OnChange = Callable[[Key], None]


class QueueState(Enum):
    HOLDS = "holds a slot, or is being started"
    WAITS = "waits"


@dataclass(frozen=True, slots=True)
class QueueEntry:
    runtime: str
    state: QueueState
    order: Order

    @property
    def namespace(self) -> str:
        return _key(self.order)[0]


@dataclass(slots=True)
class _Runtime:
    """The lists are sorted; `taken` counts the slots that are held or claimed."""

    taken: int = 0
    taken_by: Counter[str] = field(default_factory=Counter)
    waiting: list[Order] = field(default_factory=list)
    waiting_of: defaultdict[str, list[Order]] = field(default_factory=lambda: defaultdict(list))

    def take(self, entry: QueueEntry, slots: int) -> None:
        self.taken += slots
        self.taken_by[entry.namespace] += slots

    def room_of(self, namespace: str, share: int) -> int:
        return max(share - self.taken_by[namespace], 0)

    def line(self, share: int | None) -> list[Order]:
        """The runs that others wait for: of each namespace as many as its share has room for."""
        if share is None:
            return self.waiting
        return list(merge(*(orders[: self.room_of(name, share)] for name, orders in self.waiting_of.items())))


def _ignore(_: Key) -> None:
    """The default: no subscriber."""


class RuntimeQueues:
    """`limits_of` returns a runtime's limits."""

    def __init__(self, limits_of: Callable[[str], Limits]) -> None:
        self._limits_of = limits_of
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
        """The run's position among the others, or the one it would have if it waited: in its namespace, if the share
        of that has no room for it, or else at its runtime.
        """
        limits, runtime = self._limits_of(run.spec.runtime), self._runtimes[run.spec.runtime]
        limit, share = limits.max_active_runs, limits.max_active_runs_per_namespace
        namespace, order, own = run.metadata.namespace, self.order_of(run), self._entries.get(run.key)
        itself = own is not None and own.runtime == run.spec.runtime and own.state is QueueState.HOLDS
        before = bisect_left(runtime.waiting, order)
        if share is not None:
            mine = runtime.waiting_of.get(namespace, [])
            active, ahead = runtime.taken_by[namespace] - itself, bisect_left(mine, order)
            position = QueuePosition(share, active, ahead, namespace)
            if limit is None or not has_room(position):
                return position
            others = ((name, orders) for name, orders in runtime.waiting_of.items() if name != namespace)
            before = ahead + sum(min(bisect_left(each, order), runtime.room_of(name, share)) for name, each in others)
        return None if limit is None else QueuePosition(limit, runtime.taken - itself, before)

    def order_of(self, run: TrainingRun) -> Order:
        return order_of(run, self._limits_of(run.spec.runtime).max_priority)

    def waiting(self, runtime: str) -> tuple[Key, ...]:
        return tuple(map(_key, self._runtimes[runtime].waiting))

    def counts(self) -> Iterator[tuple[str, int, int, int | None]]:
        """For each runtime that runs name: its name, the slots taken, the runs that wait, its limit. For scrapes."""
        for name, runtime in self._runtimes.items():
            yield name, runtime.taken, len(runtime.waiting), self._limits_of(name).max_active_runs

    # --- changes ------------------------------------------------------------------------------------------------
    def changed(self, key: Key, run: TrainingRun | None) -> None:
        """The cache holds another version of a run, or none anymore. That settles its claim: what was decided on an
        older version has been written, or the API server rejects it.
        """
        self._claimed.pop(key, None)
        state = _state(run) if run else None
        self._replace(key, QueueEntry(run.spec.runtime, state, self.order_of(run)) if run and state else None)

    def pod_changed(self, key: Key, pod: PodObservation | None) -> None:
        """A pod outlives its run; None: it is over or lost, or its run is there and counts."""
        namespace, name = key
        order = 0, "", f"pod/{name}", namespace  # no run has such a name
        holds = pod is not None and pod.runtime
        self._replace(_key(order), QueueEntry(holds, QueueState.HOLDS, order) if holds else None)

    @contextmanager
    def claimed(self, run: TrainingRun) -> Iterator[None]:
        """Hold a slot while the run's start is written.

        If the outcome of the write is unknown, the claim stays until the cache has a newer version of the run: the next
        reconcile finds out. A waiting run whose start is refused leaves the queue until then: a run that cannot start
        must not hold up the others. One that holds a slot, between two attempts, keeps it.
        """
        key = run.key
        self._claimed.setdefault(key, self._entries.get(key))
        self._replace(key, QueueEntry(run.spec.runtime, QueueState.HOLDS, self.order_of(run)))
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
                self._replace(key, None if before and before.state is QueueState.WAITS else before)
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
            self._count(before, joins=False)
        if entry:
            self._count(entry, joins=True)
        for name in {each.runtime for each in (before, entry) if each}:
            self.wake(name)

    def _count(self, entry: QueueEntry, *, joins: bool) -> None:
        runtime = self._runtimes[entry.runtime]
        index = bisect_left(runtime.waiting, entry.order)
        if entry.state is QueueState.HOLDS:
            runtime.take(entry, 1 if joins else -1)
        else:
            for orders in (runtime.waiting, runtime.waiting_of[entry.namespace]):
                if joins:
                    insort(orders, entry.order)
                else:
                    del orders[bisect_left(orders, entry.order)]
        self._tell_moved(entry, runtime, index + joins, up=not joins)

    def wake(self, name: str) -> None:
        """Wake the runs at the head of a runtime's queue, as many as there are free slots."""
        runtime, limits = self._runtimes[name], self._limits_of(name)
        line, limit = runtime.line(limits.max_active_runs_per_namespace), limits.max_active_runs
        room = len(line) if limit is None else max(limit - runtime.taken, 0)
        for order in line[:room]:
            self._start(_key(order))

    def _tell_moved(self, entry: QueueEntry, runtime: _Runtime, first: int, *, up: bool) -> None:
        """Wake the runs behind `first` whose displayed position changed, now that the entry has come or gone. With
        shares, a slot of a namespace moves others, too: then, those of which it may be true.
        """
        share = self._limits_of(entry.runtime).max_active_runs_per_namespace
        lines = [runtime.waiting]
        if share is not None:
            mine, room = runtime.waiting_of.get(entry.namespace, []), runtime.room_of(entry.namespace, share)
            lines, first = [runtime.line(share), mine, mine[max(room - 1, 0) : room + 1]], 0
        elif entry.state is not QueueState.WAITS:
            return
        for line in lines:
            for position in positions_with_news(len(line), moved_up=up):
                if position > first:
                    self._moved(_key(line[position - 1]))


def _state(run: TrainingRun) -> QueueState | None:
    if run.metadata.deletion_timestamp is not None:
        return None
    if holds_slot(run):
        return QueueState.HOLDS
    return QueueState.WAITS if waits_in_queue(run) else None


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
