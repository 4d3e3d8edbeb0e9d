from pathlib import Path

from rl_operator.local.events import KEPT_BYTES, Event, append_event, read_events


def test_events_come_back_in_order(tmp_path: Path) -> None:
    events = [Event("2026-01-01T00:00:00Z", "Normal", "Starting", f"attempt {n}") for n in range(3)]
    for event in events:
        append_event(tmp_path / "run.jsonl", event)
    assert list(read_events(tmp_path / "run.jsonl")) == events


def test_no_log_is_no_events(tmp_path: Path) -> None:
    assert list(read_events(tmp_path / "run.jsonl")) == []


def test_the_log_is_bounded(tmp_path: Path) -> None:
    event = Event("2026-01-01T00:00:00Z", "Warning", "Failed", "x" * 10_000)
    for _ in range(60):
        append_event(tmp_path / "run.jsonl", event)
    assert (tmp_path / "run.jsonl").stat().st_size < KEPT_BYTES + 20_000
