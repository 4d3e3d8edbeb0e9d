"""ConfigMaps that cannot change, read once: what pods are made from would otherwise be read for each of them.

Nothing here is a memory of what happened. What the watch shows in another version (its owners may change), or as gone,
is forgotten; what is not found is read.
"""

from collections import OrderedDict
from typing import Final

from rl_operator.cluster.cache.resource_cache import Document, Key, key_of

MOST_CHARACTERS: Final = 4_000_000
"""Those of about 250 runs with sandboxes."""

_READ_LATER: Final = ("name", "namespace", "uid", "resourceVersion", "ownerReferences")
"""Of the metadata: whose it is, and which."""


class ImmutableConfigMaps:
    """By namespace and name; those that were not asked for longest make room."""

    def __init__(self, most_characters: int = MOST_CHARACTERS) -> None:
        self._most_characters = most_characters
        self._held: OrderedDict[Key, Document] = OrderedDict()
        self._characters = 0

    def get(self, key: Key) -> Document | None:
        if key in self._held:
            self._held.move_to_end(key)
        return self._held.get(key)

    def hold(self, config_map: Document) -> None:
        """Keep what is read of it later, if the API server says that it cannot change."""
        if not config_map.get("immutable"):
            return
        key = key_of(config_map)
        self.forget(key)
        kept = self._held[key] = _kept(config_map)
        self._characters += _characters(kept)
        while self._characters > self._most_characters:
            self.forget(next(iter(self._held)))

    def forget(self, key: Key) -> None:
        if (kept := self._held.pop(key, None)) is not None:
            self._characters -= _characters(kept)


def _kept(config_map: Document) -> Document:
    metadata = config_map["metadata"]
    return {
        "metadata": {name: metadata[name] for name in _READ_LATER if name in metadata},
        "immutable": True,
        "data": config_map.get("data") or {},
    }


def _characters(kept: Document) -> int:
    texts = kept["data"]
    return len(str(kept["metadata"])) + sum(map(len, texts)) + sum(map(len, texts.values()))
