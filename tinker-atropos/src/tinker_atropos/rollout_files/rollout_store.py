"""Where rollout files are, as their readers and their mirror see it."""

from collections.abc import Mapping
from typing import Protocol


class RolloutStore(Protocol):
    """Files by name. Every method may raise OSError with a sentence, and blocks: it is called from a thread."""

    def names(self) -> Mapping[str, int]:
        """The files, with their sizes in bytes."""
        ...

    def read(self, name: str) -> bytes:
        """Raises FileNotFoundError if there is no such file."""
        ...


class WritableStore(RolloutStore, Protocol):
    """A store that outlives the trainer's own folder."""

    def put(self, name: str, content: bytes) -> None: ...

    def delete(self, name: str) -> None: ...


class RolloutMirror(WritableStore, Protocol):
    """All files of a run: those of the trainer's own folder are copied to a store that outlives it."""

    @property
    def earlier(self) -> Mapping[str, int] | None:
        """The files that only the store has, which earlier attempts put there, with their sizes in bytes. None: not
        known yet.
        """
        ...

    def close(self, seconds: float) -> None:
        """Do what was asked for and still waits, for at most so long."""
        ...
