"""The bundled environment's rules, without a run around them."""

import pytest

from tinker_atropos.environments.bundled.sort_digits import SortDigits

SCORES = [("1234", 1.0), ("1243", 0.0), ("1234 ", 0.0), ("", 0.0), ("12345", 0.0)]


@pytest.fixture
def bare_sort_digits():
    return object.__new__(SortDigits)  # its rules need nothing that BaseEnv connects to


@pytest.mark.parametrize(("completion", "score"), SCORES)
def test_only_the_sorted_digits_are_rewarded(bare_sort_digits, completion, score):
    assert bare_sort_digits.score((4, 1, 3, 2), completion) == score
