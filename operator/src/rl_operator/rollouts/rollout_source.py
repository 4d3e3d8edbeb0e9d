"""Where a run's rollouts can be read, and of which steps there are some. A target knows the source; readers see no more
than this of it.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from rl_operator.operator_errors import RefusedError

NEAREST: Final = 2
"""Steps that are named before one that there is not, and after it."""


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


_NAME: Final = re.compile(r"(?P<step>\d{1,12})-(?P<attempt>\d{1,9})\.jsonl\.zst")


@dataclass(frozen=True)
class StepFiles:
    """What attempts kept of a step, of the newest one first; at least one."""

    step: int
    files: dict[int, RolloutFile]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


@dataclass(frozen=True)
class RolloutSteps:
    """The steps that a run has kept, in their order. `source` remembers the file that was read last."""

    source: RolloutSource
    listing: RolloutListing
    steps: dict[int, StepFiles]

    @classmethod
    def of(cls, source: RolloutSource) -> "RolloutSteps":
        """Files that are named otherwise are none of ours."""
        listing, found = source.listing(), defaultdict[int, dict[int, RolloutFile]](dict)
        for file in listing.files:
            if name := _NAME.fullmatch(file.name):
                found[int(name["step"])][int(name["attempt"])] = file
        steps = {step: StepFiles(step, dict(sorted(found[step].items(), reverse=True))) for step in sorted(found)}
        return cls(LastFile(source), listing, steps)

    def step(self, number: int) -> StepFiles:
        """Raises RefusedError if there is none."""
        if number in self.steps:
            return self.steps[number]
        known = list(self.steps)
        at = bisect_left(known, number)
        near = ", ".join(map(str, known[max(0, at - NEAREST) : at + NEAREST]))
        every = f"; every {self.listing.every}th step is kept" if self.listing.every > 1 else ""
        raise RefusedError(f"there are no rollouts of step {number}; the nearest steps that have some: {near}{every}")

    def newest_first(self) -> Iterator[StepFiles]:
        return reversed(self.steps.values())
