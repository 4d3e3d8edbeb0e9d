"""What happened to a run, as a small log that people read."""

import json
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
    """Add one line; beyond KEPT_BYTES the log starts anew. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = "w" if path.exists() and path.stat().st_size > KEPT_BYTES else "a"
    with path.open(mode, encoding="utf-8") as log:
        log.write(json.dumps(asdict(event)) + "\n")


def read_events(path: Path) -> Iterator[Event]:
    """The events, oldest first; none if nothing happened yet."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield Event(**json.loads(line))
