import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_operator.local.state.pod_logs import KEPT_BYTES, Event, append_event, read_events


def test_events_come_back_in_order(tmp_path: Path) -> None:
    events = [Event("2026-01-01T00:00:00Z", "Normal", "Starting", f"attempt {n}") for n in range(3)]
    for event in events:
        append_event(tmp_path / "run.jsonl", event)
    assert list(read_events(tmp_path / "run.jsonl")) == events


def test_a_missing_log_has_no_events(tmp_path: Path) -> None:
    assert list(read_events(tmp_path / "run.jsonl")) == []


def test_the_log_is_bounded(tmp_path: Path) -> None:
    event = Event("2026-01-01T00:00:00Z", "Warning", "Failed", "x" * 10_000)
    for _ in range(60):
        append_event(tmp_path / "run.jsonl", event)
    assert (tmp_path / "run.jsonl").stat().st_size < KEPT_BYTES + 20_000


@pytest.fixture
def bounded_files() -> Iterator[int]:
    """No file of this process may grow beyond so many bytes: a disk that is full in the middle of a write."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield 1000
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_an_event_that_does_not_fit_leaves_no_partial_line(tmp_path: Path, bounded_files: int) -> None:
    fits = Event("2026-01-01T00:00:00Z", "Normal", "Starting", "x" * (bounded_files // 2))
    append_event(tmp_path / "run.jsonl", fits)
    with pytest.raises(OSError, match="No space left"):
        append_event(tmp_path / "run.jsonl", fits)
    assert list(read_events(tmp_path / "run.jsonl")) == [fits]
