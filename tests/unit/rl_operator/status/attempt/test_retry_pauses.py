"""Pauses double up to a bound, and a clock set back does not lengthen them."""

from datetime import timedelta

import pytest
from tests.unit.rl_operator.status.builders import NOW

from rl_operator.status.attempt.retry_pauses import MAX_PAUSE_SECONDS, due_after, pause_seconds


@pytest.mark.parametrize(("times", "seconds"), [(0, 0), (1, 10), (2, 20), (4, 80), (6, MAX_PAUSE_SECONDS)])
def test_pauses_double(times: int, seconds: float) -> None:
    assert pause_seconds(10.0, times) == seconds


def test_a_pause_begins_at_the_end() -> None:
    assert due_after(NOW, 10.0, NOW + timedelta(seconds=4)) == NOW + timedelta(seconds=10)


def test_small_clock_differences_are_tolerated() -> None:
    assert due_after(NOW + timedelta(seconds=5), 10.0, NOW) == NOW + timedelta(seconds=15)


def test_a_clock_an_hour_back_is_not_waited_for() -> None:
    assert due_after(NOW + timedelta(hours=1), 10.0, NOW) == NOW
