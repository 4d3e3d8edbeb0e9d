"""A cache of one resource, projected: holds what reconciling needs, and never returns to an older version."""

import logging
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from sys import intern
from typing import Final, Generic, TypeVar

from rl_operator.api.kubernetes_objects import KubernetesObject
from rl_operator.cluster.api_server.client import WatchEvent

log = logging.getLogger(__name__)

Held = TypeVar("Held", bound=KubernetesObject)
Value = TypeVar("Value")

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name. Thousands of them repeat the same few words: interned."""

METADATA_KIND: Final = "PartialObjectMetadata"

Changed = Callable[[Key, Value | None], None]
"""Called with what is held of an object from now on; None: nothing."""


@dataclass(frozen=True, slots=True)
class Record(Generic[Value]):
    """A projected object with what orders and identifies it."""

    version: int
    uid: str
    run: Key | None
    value: Value
    from_answer: bool = False
    """Put by the response to one of our writes; the watch has not reported it yet."""

    partial: bool = False
    """That response held metadata only: what the watch reports of this version is more."""


def key_of(document: KubernetesObject) -> Key:
    metadata = document["metadata"]
    return intern(metadata.get("namespace", "")), intern(metadata["name"])


def version_of(document: KubernetesObject) -> int:
    """The version of an object; versions of one resource are comparable numbers (KEP-5504)."""
    return int(document["metadata"]["resourceVersion"])


class ResourceCache(Generic[Held, Value]):
    """Objects by key, and by the key that is to be looked at when they change: of the run that their labels name, or
    their own.

    Three writers feed it: lists, watch events and the responses to our own writes. Late data loses, so that no decision
    rests on anything older than what this process wrote itself.
    """

    def __init__(self, project: Callable[[Held], Value], run_of: Callable[[KubernetesObject], Key | None]) -> None:
        self._project = project
        self.run_of = run_of
        self._records: dict[Key, Record[Value]] = {}
        self._by_run: dict[Key, tuple[Key, ...]] = {}
        self._changed: Changed[Value] = _ignore
        self._listed_to = 0
        self._watched_to = 0

    def on_change(self, changed: Changed[Value]) -> None:
        """Have `changed` called at once whenever another version of an object is held, or none anymore."""
        self._changed = changed

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Value]:
        return (record.value for record in self._records.values())

    def get(self, key: Key) -> Value | None:
        record = self._records.get(key)
        return record.value if record else None

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(name for _, name in self._records))

    def of_run(self, run: Key) -> tuple[Value, ...]:
        return tuple(self._records[key].value for key in sorted(self._by_run.get(run, ())))

    def names_of_run(self, run: Key) -> tuple[str, ...]:
        return tuple(sorted(name for _, name in self._by_run.get(run, ())))

    def runs(self) -> tuple[Key, ...]:
        return tuple(self._by_run)

    def apply(self, event: WatchEvent[Held]) -> Key | None:
        """Take what a watch reports. Returns the key to look at, if there is news."""
        document = event["object"]
        self.watched(version_of(document))
        if event["type"] == "BOOKMARK":
            return None
        news = self.remove(document) if event["type"] == "DELETED" else self.put(document)
        return self.run_of(document) if news else None

    def put(self, document: Held) -> bool:
        """Add an object from a list or an event. Returns whether there is news to act on, our own writes included.

        What a complete list of a later version did not contain is gone: an event about it is late.
        """
        key, version = key_of(document), version_of(document)
        held = self._records.get(key)
        if held is None and version <= self._listed_to:
            return False
        if held and held.version == version and held.from_answer and not held.partial:
            self._records[key] = replace(held, from_answer=False)
            return True
        return self._take(document, from_answer=False)

    def put_answer(self, document: Held) -> None:
        """Add the response to one of our writes, unless the watch has already reported that the object is gone."""
        if key_of(document) in self._records or version_of(document) > self._watched_to:
            self._take(document, from_answer=True)

    def _take(self, document: Held, *, from_answer: bool) -> bool:
        """Hold the object, unless this version or a newer one is already held."""
        key, version = key_of(document), version_of(document)
        held = self._records.get(key)
        if held and held.version >= version + held.partial:
            return False
        self._drop(key)
        try:
            value = self._project(document)
        except Exception as error:  # noqa: BLE001 -- one unreadable object must not hide the rest
            log.warning("%s/%s (version %d) cannot be read and is passed over: %s", *key, version, error)
            self._changed(key, None)
            return False
        run = self.run_of(document)
        partial = from_answer and document.get("kind") == METADATA_KIND
        self._records[key] = Record(version, document["metadata"].get("uid", ""), run, value, from_answer, partial)
        if run is not None:
            self._by_run[run] = (*self._by_run.get(run, ()), key)
        self._changed(key, value)
        return True

    def remove(self, document: KubernetesObject) -> bool:
        """Forget a deleted object; a newer one of the same name stays."""
        key = key_of(document)
        if self.uid_of(key) != document["metadata"].get("uid", ""):
            return False
        self._forget(key)
        return True

    def uid_of(self, key: Key) -> str | None:
        record = self._records.get(key)
        return record.uid if record else None

    def forget(self, key: Key, uid: str | None) -> None:
        """Forget what a call did not find, unless another object has the name by now."""
        if self.uid_of(key) == uid:
            self._forget(key)

    def sweep(self, listed: AbstractSet[Key], version: int) -> tuple[Key, ...]:
        """Forget what a complete list of that version does not contain; returns the keys to look at."""
        gone = [(k, r) for k, r in self._records.items() if k not in listed and r.version <= version]
        for key, _ in gone:
            self._forget(key)
        self._listed_to = max(self._listed_to, version)
        self.watched(version)
        return tuple(record.run for _, record in gone if record.run)

    def watched(self, version: int) -> None:
        """Note how far the watch has progressed."""
        self._watched_to = max(self._watched_to, version)

    def _forget(self, key: Key) -> None:
        self._drop(key)
        self._changed(key, None)

    def _drop(self, key: Key) -> None:
        record = self._records.pop(key, None)
        if record is None or record.run is None:
            return
        siblings = tuple(sibling for sibling in self._by_run.pop(record.run) if sibling != key)
        if siblings:
            self._by_run[record.run] = siblings


def _ignore(_key: Key, _value: object) -> None:
    """The default: no subscriber."""
