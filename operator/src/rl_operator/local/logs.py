"""Reads a container's log while it is being written."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

LOOK_SECONDS = 0.2


def tail_log(path: Path, lines: int | None) -> Iterator[str]:
    """The last lines (None: all), each with its end; the part put aside comes first. Nothing if there is no log."""
    kept: deque[str] = deque(maxlen=lines)
    for part in (path.with_suffix(".log.1"), path):
        if part.exists():
            with part.open(encoding="utf-8", errors="replace") as log:
                kept.extend(log)
    yield from kept


def follow_log(path: Path, lines: int | None, ended: Callable[[], bool]) -> Iterator[str]:
    """The last lines, then what is added, until `ended` says that nothing more will come."""
    offset = path.stat().st_size if path.exists() else 0
    yield from tail_log(path, lines)
    while True:
        over = ended()
        if path.exists():
            size = path.stat().st_size
            offset = 0 if size < offset else offset  # the log was put aside and began anew
            with path.open("rb") as log:
                log.seek(offset)
                added = log.read()
            offset += len(added)
            yield from added.decode("utf-8", "replace").splitlines(keepends=True)
        if over:
            return
        time.sleep(LOOK_SECONDS)
