"""The bundled environment's rules, without a run around them."""

import random

import pytest

from tinker_atropos.environments.base import _endless
from tinker_atropos.environments.bundled.sort_digits import SortDigits

SCORES = [("1234", 1.0), ("1243", 0.0), ("1234 ", 0.0), ("", 0.0), ("12345", 0.0)]


@pytest.fixture
def bare_sort_digits():
    return object.__new__(SortDigits)  # its rules need nothing that BaseEnv connects to


@pytest.mark.parametrize(("completion", "score"), SCORES)
def test_only_the_sorted_digits_are_rewarded(bare_sort_digits, completion, score):
    assert bare_sort_digits.score((4, 1, 3, 2), completion) == score


def test_every_item_comes_once_before_any_comes_twice():
    items = _endless([1, 2, 3], random.Random(0))
    drawn = [next(items) for _ in range(9)]
    assert [sorted(drawn[start : start + 3]) for start in (0, 3, 6)] == [[1, 2, 3]] * 3
