import pytest

from rl_contract.wire import more_than


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "a few seconds"),
        (9.9, "a few seconds"),
        (10.0, "more than 10 s"),
        (59.0, "more than 30 s"),
        (7_199.0, "more than 1 h"),
        (3e7, "more than 1 week"),
    ],
)
def test_a_duration_is_given_in_steps(seconds: float, words: str) -> None:
    assert more_than(seconds) == words
