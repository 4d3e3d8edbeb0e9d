"""Curves from files that grow: what is read again, which attempt counts, and what is thinned out."""

from typing import Any

import pytest
from tests.unit.rl_operator.rollouts.made_rollouts import MemorySource, frame, step

from rl_operator.rollouts.metrics_history import MetricsHistory, metrics_files

FIGURES = {"reward": lambda metrics: metrics.get("reward/mean")}


def trained(number: int, reward: float | None, attempt: int = 1) -> dict[str, Any]:
    return step(number, {}, attempt=attempt) | {"time": 100.0 + number, "metrics": {"reward/mean": reward}}


def evaluated(number: int, value: float) -> dict[str, Any]:
    return {"record": "evaluation", "step": number, "time": 100.0, "metrics": {"reward/mean": value}}


def history(most: int = 100) -> MetricsHistory:
    return MetricsHistory(FIGURES, FIGURES, most)


def rewards(of: MetricsHistory, after: int = -1) -> dict[int, float]:
    steps, _, columns = of.steps.columns(after)
    return dict(zip(steps, columns["reward"], strict=True))


def test_files_are_found_by_attempt() -> None:
    source = MemorySource(dict.fromkeys(("metrics-10.jsonl.zst", "metrics-2.jsonl.zst", "000001-1.jsonl.zst"), b""))
    assert list(metrics_files(source.listing())) == [2, 10]


def test_only_what_was_added_is_read() -> None:
    first, second = frame(trained(1, 0.5)), frame(trained(2, 0.6))
    source, found = MemorySource({"metrics-1.jsonl.zst": first}), history()
    assert list(found.unread(source.listing())) == [(1, "metrics-1.jsonl.zst", 0)]
    found.add(1, first)
    assert list(found.unread(source.listing())) == []
    source.files["metrics-1.jsonl.zst"] += second
    assert list(found.unread(source.listing())) == [(1, "metrics-1.jsonl.zst", len(first))]
    found.add(1, second, len(first))
    assert list(found.unread(source.listing())) == []
    assert rewards(found) == {1: 0.5, 2: 0.6}
    assert found.faults == 0
    assert found.steps.columns(1)[:2] == ([2], [102.0])


@pytest.mark.parametrize("kept", [1, 10, -1])
def test_a_frame_that_is_being_written_is_read_when_it_is_whole(kept: int) -> None:
    first, second = frame(trained(1, 0.5)), frame(trained(2, 0.6))
    source, found = MemorySource({"metrics-1.jsonl.zst": first + second[:kept]}), history()
    found.add(1, first + second[:kept])
    assert 1 in rewards(found)
    source.files["metrics-1.jsonl.zst"] = first + second
    [(_, name, begin)] = found.unread(source.listing())
    assert begin == len(first)
    found.add(1, source.content(name, begin), begin)
    assert (rewards(found), found.faults) == ({1: 0.5, 2: 0.6}, 0)


def test_a_file_that_became_shorter_is_read_from_its_start() -> None:
    """A copy that lags behind the trainer's own: what was read of that stays."""
    source, found = MemorySource({"metrics-1.jsonl.zst": frame(trained(1, 0.7))}), history()
    found.add(1, frame(trained(1, 0.5)) + frame(trained(2, 0.6)))
    [(attempt, name, begin)] = found.unread(source.listing())
    assert begin == 0
    found.add(attempt, source.content(name, begin), begin)
    assert rewards(found) == {1: 0.7, 2: 0.6}
    assert list(found.unread(source.listing())) == []


def test_a_later_attempt_takes_the_place_of_steps_that_were_lost() -> None:
    found = history()
    found.add(1, frame(evaluated(0, 0.1), *(trained(number, 0.1) for number in range(1, 6)), evaluated(4, 0.4)))
    assert found.attempt == 1
    found.add(2, frame(trained(3, 0.9, 2)))
    assert found.attempt == 2
    assert rewards(found) == {1: 0.1, 2: 0.1, 3: 0.9}, "steps 4 and 5 went with attempt 1"
    assert found.evaluations.columns(-1)[0] == [0], "so did the evaluation of step 4"


def test_an_older_attempt_that_is_read_later_changes_nothing() -> None:
    found = history()
    found.add(2, frame(trained(3, 0.9, 2)))
    found.add(1, frame(trained(2, 0.1), trained(3, 0.1), trained(4, 0.1)))
    assert rewards(found) == {2: 0.1, 3: 0.9}


def test_more_steps_than_are_kept_are_thinned_out_and_the_newest_stays() -> None:
    found, read = history(most=8), 0
    for number in range(1, 30):
        content = frame(trained(number, 0.5))
        found.add(1, content, read)
        read += len(content)
        assert list(rewards(found))[-1] == number
    kept = list(rewards(found))
    assert len(kept) <= 8
    assert kept == [4, 8, 12, 16, 20, 24, 28, 29]


@pytest.mark.parametrize("line", [b"no JSON\n", b'{"record": "step", "step": -1}\n', b"[" * 5000 + b"\n"])
def test_a_bad_line_costs_itself_only(line: bytes) -> None:
    found = history()
    found.add(1, frame(trained(1, 0.5), line, trained(2, None)))
    assert list(rewards(found)) == [1, 2]
    assert found.faults == 1


def test_records_that_are_not_known_are_left_out() -> None:
    found = history()
    found.add(1, frame({"record": "weather", "step": 1}, trained(1, 0.123456789)))
    assert rewards(found) == {1: 0.123457}
