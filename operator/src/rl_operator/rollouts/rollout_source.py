"""Where a run's rollouts can be read. A target knows it; readers see no more than this of it."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol


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
class AttemptFile:
    """What one attempt kept of a step."""

    step: int
    attempt: int
    file: RolloutFile


@dataclass(frozen=True)
class StepFiles:
    """All files of a step, of the newest attempt first; at least one."""

    step: int
    files: tuple[AttemptFile, ...]

    @property
    def bytes(self) -> int:
        return sum(each.file.bytes for each in self.files)


def files_by_step(listing: RolloutListing) -> dict[int, StepFiles]:
    """In the order of steps. Files that are named otherwise are none of ours."""
    found = defaultdict[int, list[AttemptFile]](list)
    for file in listing.files:
        if name := _NAME.fullmatch(file.name):
            step = int(name["step"])
            found[step].append(AttemptFile(step, int(name["attempt"]), file))
    newest_first = {step: sorted(files, key=lambda each: -each.attempt) for step, files in found.items()}
    return {step: StepFiles(step, tuple(newest_first[step])) for step in sorted(newest_first)}


def nearest_steps(steps: Sequence[int], wanted: int, count: int = 2) -> list[int]:
    """From sorted steps, up to `count` before and after the wanted one."""
    at = bisect_left(steps, wanted)
    return list(steps[max(0, at - count) : at + count])
