"""A folder of rollout files, of bounded size, and the names of these files."""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

_METRICS: Final = re.compile(r"metrics-(\d{1,9})\.jsonl\.zst", re.ASCII)
_PATTERN: Final = re.compile(r"(\d{6,12})-(\d{1,9})\.jsonl\.zst", re.ASCII)


class StepFile(NamedTuple):
    """Step `step` as attempt `attempt` (from 1) trained it."""

    step: int
    attempt: int

    @property
    def name(self) -> str:
        return f"{self.step:06d}-{self.attempt}.jsonl.zst"


def parse_name(name: str) -> StepFile | None:
    """None for any other file."""
    found = _PATTERN.fullmatch(name)
    return StepFile(int(found[1]), int(found[2])) if found else None


def metrics_name(attempt: int) -> str:
    """The file with the metrics of all steps of an attempt (from 1)."""
    return f"metrics-{attempt}.jsonl.zst"


def is_rollout_file(name: str) -> bool:
    """Whether the name is one of ours."""
    return bool(_PATTERN.fullmatch(name) or _METRICS.fullmatch(name))


MEGABYTE = 2**20

LARGEST_SHARE = 4
"""A step that takes more than this part of the room would leave none for others."""


class TooLargeError(OSError):
    """One step takes too much of the room for all."""


class BoundedFolder:
    """Implements `RolloutStore`. `every`: files of steps that it divides are kept. Used by one thread at a time.

    The limit is for all files of a run, also for those that only a mirror has (`count`).

    Nothing is made on disk before the first line is written.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._sizes: dict[str, int] | None = None
        self.every = 1

    def names(self) -> dict[str, int]:
        try:
            with os.scandir(self._folder) as entries:
                return dict(_sizes(entries))
        except FileNotFoundError:
            return {}

    def read(self, name: str) -> bytes:
        if not is_rollout_file(name):
            raise FileNotFoundError(name)
        return (self._folder / name).read_bytes()

    def keeps(self, step: int) -> bool:
        self._known()
        return self._limit_bytes > 0 and step % self.every == 0

    def count(self, elsewhere: Mapping[str, int]) -> list[str]:
        """Files of earlier attempts that are not in this folder, with their sizes. Returns the names of all files that
        are removed to make room; this folder's are.
        """
        sizes = self._known()
        steps = {name: size for name, size in elsewhere.items() if parse_name(name)}
        if sum(steps.values()) * 2 > self._limit_bytes:
            self.every = max(self.every, _interval(steps))
        sizes |= {name: size for name, size in steps.items() if name not in sizes}
        return self._remove(sizes) + self._thin(sizes)

    def append(self, file: StepFile, content: bytes) -> list[str]:
        """Add whole lines to a step's file. Returns the names of files that were removed to make room.

        Raises OSError if it cannot be written, and then leaves the file as it was.
        """
        sizes = self._known()
        size = sizes.get(file.name, 0)
        if (size + len(content)) * LARGEST_SHARE > self._limit_bytes:
            raise TooLargeError(
                f"step {file.step} takes {(size + len(content)) / MEGABYTE:.1f} MB, more than a quarter of "
                f"trainer.keep_rollouts_mb ({self._limit_bytes // MEGABYTE})"
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        _append(self._folder / file.name, content, size)
        sizes[file.name] = size + len(content)
        return self._thin(sizes)

    def append_metrics(self, attempt: int, content: bytes) -> str:
        """Add whole lines to the attempt's file of metrics, whose size nothing bounds: about 1 kB a step. Returns its
        name. Raises OSError as `append` does.
        """
        name = metrics_name(attempt)
        path = self._folder / name
        self._folder.mkdir(parents=True, exist_ok=True)
        _append(path, content, path.stat().st_size if path.exists() else 0)
        return name

    def _known(self) -> dict[str, int]:
        """The sizes; at first those that earlier attempts left, with the interval that they have."""
        if self._sizes is None:
            self._sizes = {name: size for name, size in self.names().items() if parse_name(name)}
            if sum(self._sizes.values()) * 2 > self._limit_bytes:
                self.every = _interval(self._sizes)
        return self._sizes

    def _thin(self, sizes: dict[str, int]) -> list[str]:
        removed: list[str] = []
        while sum(sizes.values()) > self._limit_bytes:
            self.every *= 2
            removed += self._remove(sizes)
            if self.every > max(map(_step, sizes), default=0):
                break
        return removed

    def _remove(self, sizes: dict[str, int]) -> list[str]:
        """The files of steps that are not kept."""
        removed = [name for name in sizes if _step(name) % self.every]
        for name in removed:
            (self._folder / name).unlink(missing_ok=True)
            del sizes[name]
        return removed


def _sizes(entries: Iterable[os.DirEntry[str]]) -> Iterator[tuple[str, int]]:
    for entry in entries:
        if is_rollout_file(entry.name):
            with contextlib.suppress(FileNotFoundError):  # it was removed to make room
                yield entry.name, entry.stat().st_size


def _append(path: Path, content: bytes, size: int) -> None:
    with path.open("ab", buffering=0) as file:  # a buffer would write again what failed before it is cut off
        try:
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
        except OSError:
            file.truncate(size)  # a frame that is cut off would hide the next one from readers
            raise


def _step(name: str) -> int:
    file = parse_name(name)
    assert file is not None, "only names of step files are kept"
    return file.step


def _interval(names: dict[str, int]) -> int:
    """The largest power of two that divides all steps."""
    combined = 0
    for name in names:
        combined |= _step(name)
    return combined & -combined or 1
