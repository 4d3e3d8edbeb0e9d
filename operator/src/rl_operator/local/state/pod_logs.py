"""Logs in the state folder: the containers' logs, read while they are written, and a run's events."""

import errno
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from rl_operator.log_lines import LineCutter

LOOK_SECONDS = 0.2
CHUNK = 64 * 1024


def tail_log(path: Path, lines: int | None) -> Iterator[str]:
    """The last lines (None: all), each with its end; the rotated part comes first. Nothing if there is no log."""
    cutter = LineCutter()
    yield from map(_text, deque(chain(_ended(cutter, _written(path, _size(path))), cutter.rest()), maxlen=lines))


def follow_log(path: Path, lines: int | None, ended: Callable[[], bool]) -> Iterator[str]:
    """The last lines, then each one that is added, until `ended` reports that nothing more will come."""
    cutter, offset = LineCutter(), _size(path)
    yield from map(_text, deque(_ended(cutter, _written(path, offset)), maxlen=lines))
    while True:
        over = ended()
        size = _size(path)
        offset = 0 if size < offset else offset  # the log was rotated and started over
        yield from map(_text, _ended(cutter, _read(path, offset, size)))
        offset = size
        if over:
            yield from map(_text, cutter.rest())
            return
        time.sleep(LOOK_SECONDS)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _written(path: Path, size: int) -> Iterator[bytes]:
    """The rotated part, and the log up to that size."""
    aside = path.with_suffix(".log.1")
    return chain(_read(aside, 0, _size(aside)), _read(path, 0, size))


def _read(path: Path, begin: int, end: int) -> Iterator[bytes]:
    if begin >= end or not path.exists():
        return
    with path.open("rb") as log:
        log.seek(begin)
        for chunk in iter(partial(log.read, CHUNK), b""):
            yield chunk[: end - begin]
            begin += len(chunk)
            if begin >= end:
                return


def _ended(cutter: LineCutter, chunks: Iterable[bytes]) -> Iterator[bytes]:
    return (line for chunk in chunks for line in cutter.feed(chunk))


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


KEPT_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Event:
    """`kind` is Normal or Warning. `run_uid`: a deletion that was interrupted leaves the log to the next run of the
    name.
    """

    time: str
    kind: str
    reason: str
    message: str
    run_uid: str = ""


def append_event(path: Path, event: Event) -> None:
    """Add one line, all of it or nothing; beyond KEPT_BYTES the log starts again. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(asdict(event)).encode() + b"\n"
    with path.open("ab", buffering=0) as log:
        if log.tell() > KEPT_BYTES:
            log.truncate(0)
        size = log.seek(0, os.SEEK_END)
        if log.write(line) != len(line):  # the disk became full in the middle of it
            log.truncate(size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def read_events(path: Path) -> Iterator[Event]:
    """The events, oldest first; none if nothing happened yet."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield Event(**json.loads(line))
