"""ConfigMaps that cannot change, read once: what pods are made from would otherwise be read for each pod anew.

Nothing here is a memory of what happened. The uid comes from the watch, so that what is gone, or was created again, is
not found; what is not found is read.
"""

from collections import OrderedDict
from typing import Final

from rl_operator.cluster.cache.resource_cache import Document

MOST_CHARACTERS: Final = 4_000_000
"""Those of about 250 runs with sandboxes."""


class ImmutableConfigMaps:
    """By uid; those that were not asked for longest make room."""

    def __init__(self, most_characters: int = MOST_CHARACTERS) -> None:
        self._most_characters = most_characters
        self._held: OrderedDict[str, Document] = OrderedDict()
        self._characters = 0

    def get(self, uid: str | None) -> Document | None:
        if uid is None or uid not in self._held:
            return None
        self._held.move_to_end(uid)
        return self._held[uid]

    def hold(self, config_map: Document) -> None:
        """Keep it, if the API server says that it cannot change."""
        if not config_map.get("immutable") or (uid := config_map["metadata"]["uid"]) in self._held:
            return
        self._held[uid] = config_map
        self._characters += _characters(config_map)
        while self._characters > self._most_characters:
            _, oldest = self._held.popitem(last=False)
            self._characters -= _characters(oldest)


def _characters(config_map: Document) -> int:
    return sum(map(len, (config_map.get("data") or {}).values()))
