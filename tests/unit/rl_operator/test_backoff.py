"""One rule for pauses: doubled by each failure, bounded, with a little jitter."""

from hypothesis import given
from hypothesis import strategies as st

from rl_operator.backoff import backoff, jittered

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
