"""Where a run's rollouts can be read. A target knows it; readers see no more than this of it."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class RolloutFile:
    """One attempt's file of one step, as it is listed. `bytes`: compressed."""

    name: str
    bytes: int


@dataclass(frozen=True)
class RolloutListing:
    """The files that there are, in any order. `every`: those of steps that this number divides are kept. `note`: a
    sentence if something is wrong, such as a full disk.
    """

    files: tuple[RolloutFile, ...]
    every: int = 1
    note: str | None = None


class RolloutSource(Protocol):
    """The files of one run. Both methods may raise OperatorErrors."""

    @property
    def where(self) -> str:
        """For people: "the run's folder"."""
        ...

    def listing(self) -> RolloutListing: ...

    def content(self, name: str, begin: int = 0) -> bytes:
        """One file as it is, from byte `begin` on, which the listing says is there. Raises GoneError if it is not there
        any more.
        """
        ...


class LastFile:
    """A source that remembers the file that was read last: whoever has looked at its beginning will read all of it."""

    def __init__(self, source: RolloutSource) -> None:
        self._source = source
        self._last: tuple[str, bytes] | None = None

    @property
    def where(self) -> str:
        return self._source.where

    def listing(self) -> RolloutListing:
        return self._source.listing()

    def content(self, name: str, begin: int = 0) -> bytes:
        if self._last is None or self._last[0] != name:
            self._last = None  # not two files at once
            self._last = name, self._source.content(name)
        return self._last[1][begin:]
