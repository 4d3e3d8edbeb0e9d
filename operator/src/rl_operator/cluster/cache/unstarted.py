"""Runs that have not started, and the runs whose weights they wait for.

An index over the cache of runs, updated by its changes: what may let a run start must not cost a scan of the thousands
that started long ago.
"""

from collections import defaultdict
from collections.abc import Iterator

from rl_operator.api.run import TrainingRun
from rl_operator.cluster.cache.resource_cache import Key


class Unstarted:
    def __init__(self) -> None:
        self._runs: dict[Key, TrainingRun] = {}
        self._children: defaultdict[Key, set[Key]] = defaultdict(set)

    def __iter__(self) -> Iterator[TrainingRun]:
        return iter(self._runs.values())

    def begin_from(self, parent: Key) -> tuple[Key, ...]:
        """The runs that start from that run's weights."""
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
