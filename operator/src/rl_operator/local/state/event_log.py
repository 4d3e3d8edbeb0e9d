"""What happened to a run, as a small log that people read."""

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

KEPT_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Event:
    """`kind` is Normal or Warning."""

    time: str
    kind: str
    reason: str
    message: str


def append_event(path: Path, event: Event) -> None:
    """Add one line, all of it or nothing; beyond KEPT_BYTES the log starts again. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(asdict(event)).encode() + b"\n"
    with path.open("ab", buffering=0) as log:
        if log.tell() > KEPT_BYTES:
            log.truncate(0)
        size = log.seek(0, os.SEEK_END)
        if log.write(line) != len(line):  # the disk is full in the middle of it
            log.truncate(size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def read_events(path: Path) -> Iterator[Event]:
    """The events, oldest first; none if nothing happened yet."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield Event(**json.loads(line))
