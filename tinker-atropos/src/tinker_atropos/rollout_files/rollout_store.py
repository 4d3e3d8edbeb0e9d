"""Where rollout files are kept: a folder of bounded size, and the store that outlives it."""

import contextlib
import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

logger = logging.getLogger(__name__)

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


class StoreError(OSError):
    """The store did not do it. The message is one sentence without a key."""


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
            self.every = max(self.every, interval(steps))
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
                self.every = interval(self._sizes)
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


def interval(names: Iterable[str]) -> int:
    """The largest power of two that divides the steps of all these files."""
    combined = 0
    for name in names:
        combined |= _step(name)
    return combined & -combined or 1


PAUSE_SECONDS: Final = 30.0
"""After a failure: the store gets time, and the log has a line for each change of what is wrong."""

_LISTING: Final = ""
"""No file's name: to ask the store which files it has. It waits with the files, and begins."""


class BackgroundMirror:
    """Implements `RolloutStore` for all files of a run: those of the trainer's own `folder`, which a thread copies to a
    store that may be slow or away, and what earlier attempts left there. It does what it is asked for, the oldest
    first, until it is done. Of a file that changes meanwhile, the newest content is put: it is read from `folder` when
    its turn comes, so that nothing is held in memory.
    """

    def __init__(self, store: WritableStore, folder: RolloutStore, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._store, self._folder = store, folder
        self._pause_seconds = pause_seconds
        self._pending: dict[str, bool] = {_LISTING: False}  # name -> whether it is to be deleted
        self._earlier: dict[str, int] | None = None
        self._copying = False
        self._state = threading.Condition()
        self._closing = self._gave_up = False
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._copy_all, name="rollout mirror", daemon=True)
        self._thread.start()

    @property
    def earlier(self) -> Mapping[str, int] | None:
        """The files that only the store has, with their sizes in bytes. None: not known yet. The store is asked once:
        only this trainer changes the run's files.
        """
        with self._state:
            return None if self._earlier is None else dict(self._earlier)

    def names(self) -> Mapping[str, int]:
        return {**(self.earlier or {}), **self._folder.names()}

    def read(self, name: str) -> bytes:
        try:
            return self._folder.read(name)
        except FileNotFoundError:
            if name not in (self.earlier or {}):
                raise
        return self._store.read(name)

    def close(self, seconds: float) -> None:
        """Copy what is left, for at most so long. Blocks. Raises StoreError if something could not be copied."""
        with self._state:
            self._closing = True
            self._state.notify()
        self._thread.join(seconds)
        with self._state:
            if left := len(self._pending) + self._copying:
                why = self._trouble or f"{seconds:.0f} s were not enough"
                raise StoreError(f"the last changes of {left} rollout files are not in the store: {why}")

    def ask(self, name: str, *, gone: bool) -> None:
        """Put the file there, or delete it if it is gone. Raises StoreError while the store fails, with why; it is done
        later all the same.
        """
        with self._state:
            if gone and self._earlier is not None:
                self._earlier.pop(name, None)
            self._pending.pop(name, None)
            self._pending[name] = gone
            self._state.notify()
            if self._trouble:
                raise StoreError(self._trouble)

    def _copy_all(self) -> None:
        while (work := self._next()) is not None:
            name, gone = work
            try:
                self._copy(name, gone=gone)
            except Exception as error:  # noqa: BLE001 -- the edge of the thread: no rollout is worth a run
                why = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                self._failed(name, why, gone=gone)
            else:
                with self._state:
                    self._trouble, self._copying = None, False

    def _next(self) -> tuple[str, bool] | None:
        """Take the oldest, after a failure once there was a pause; None when there is nothing more to do."""
        with self._state:
            if self._trouble:
                self._state.wait_for(lambda: self._closing, self._pause_seconds)
            self._state.wait_for(lambda: self._pending or self._closing)
            if self._closing:
                self._pending.pop(_LISTING, None)  # nobody will read any more
            name = next(iter(self._pending), None) if not self._gave_up else None
            self._copying = name not in (None, _LISTING)
            return (name, self._pending.pop(name)) if name is not None else None

    def _copy(self, name: str, *, gone: bool) -> None:
        if name == _LISTING:
            self._list()
            return
        if gone:
            self._store.delete(name)
            return
        try:
            content = self._folder.read(name)
        except FileNotFoundError:  # it was removed to make room: that is asked for next
            return
        self._store.put(name, content)

    def _list(self) -> None:
        own = self._folder.names()
        earlier = {name: size for name, size in self._store.names().items() if name not in own}
        with self._state:
            self._earlier = earlier

    def _failed(self, name: str, why: str, *, gone: bool) -> None:
        """To be done again, unless something newer is asked of the file."""
        with self._state:
            if why != self._trouble:
                logger.warning("%s", why)
            self._trouble, self._copying = why, False
            self._gave_up = self._closing and name != _LISTING
            if name == _LISTING:  # last: a key that may not list may put
                self._pending[name] = gone
            elif name not in self._pending:
                self._pending = {name: gone, **self._pending}
