"""kopf keeps nothing in our objects: storages that store nothing, and make diffs of nothing."""

from typing import Any

import kopf


class NoDiffBase(kopf.DiffBaseStorage):  # type: ignore[misc]  # kopf is untyped here
    """Without change handlers there is nothing to compare; the default copies every object for that."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


class NoProgress(kopf.ProgressStorage):  # type: ignore[misc]  # kopf is untyped here
    """Event handlers have no progress."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: Any) -> Any:
        return essence
