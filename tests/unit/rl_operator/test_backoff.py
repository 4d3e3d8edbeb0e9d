"""One rule for pauses: doubled by each failure, bounded, with a little jitter."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.status.builders import NOW

from rl_operator.backoff import MAX_PAUSE_SECONDS, backoff, due_after, jittered, pause_seconds

FAILURES = st.integers(min_value=-5, max_value=10**9)
SECONDS = st.floats(min_value=0.01, max_value=1e4)


def test_it_doubles_up_to_a_bound() -> None:
    assert [backoff(failures, 5.0, 60.0) for failures in range(7)] == [0, 5, 10, 20, 40, 60, 60]


@given(failures=FAILURES, first=SECONDS, longest=SECONDS)
def test_it_never_decreases_and_never_exceeds_its_bound(failures: int, first: float, longest: float) -> None:
    assert 0 <= backoff(failures, first, longest) <= backoff(failures + 1, first, longest) <= longest


@given(seconds=SECONDS, spread=st.floats(min_value=0, max_value=1))
def test_jitter_stays_around_it(seconds: float, spread: float) -> None:
    assert seconds * (1 - spread) <= jittered(seconds, spread) <= seconds * (1 + spread) * (1 + 1e-9)


@pytest.mark.parametrize(("times", "seconds"), [(0, 0), (1, 10), (2, 20), (4, 80), (6, MAX_PAUSE_SECONDS)])
def test_pauses_double(times: int, seconds: float) -> None:
    assert pause_seconds(10.0, times) == seconds


def test_a_pause_begins_at_the_end() -> None:
    assert due_after(NOW, 10.0, NOW + timedelta(seconds=4)) == NOW + timedelta(seconds=10)


def test_small_clock_differences_are_tolerated() -> None:
    assert due_after(NOW + timedelta(seconds=5), 10.0, NOW) == NOW + timedelta(seconds=15)


def test_a_clock_an_hour_back_is_not_waited_for() -> None:
    assert due_after(NOW + timedelta(hours=1), 10.0, NOW) == NOW
