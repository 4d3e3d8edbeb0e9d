"""The calculator's task: its splits, what counts as right, and a calculator that answers anything with a sentence."""

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.environments.bundled import arithmetic

NUMBERS = st.integers(0, 999).map(lambda number: (str(number), number))
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
Valued = tuple[str, int]


def _combined(parts: st.SearchStrategy[Valued]) -> st.SearchStrategy[Valued]:
    binary = st.tuples(parts, st.sampled_from("+-*"), parts).map(
        lambda each: (f"({each[0][0]} {each[1]} {each[2][0]})", OPERATIONS[each[1]](each[0][1], each[2][1]))
    )
    return binary | parts.map(lambda each: (f"-{each[0]}", -each[1]))


EXPRESSIONS = st.recursive(NUMBERS, _combined, max_leaves=6).filter(lambda each: len(each[0]) <= arithmetic.MAX_LENGTH)


def test_split_is_a_partition_of_all_questions() -> None:
    split = arithmetic.split()
    parts = (split.pretraining, split.training, split.held_out)
    assert [len(part) for part in parts] == [12_000, 8_000, 4_300]
    assert len({arithmetic.question(item) for part in parts for item in part}) == 24_300


def test_split_never_changes() -> None:
    """The bundled weights were trained on it: another split would leak held-out questions into pre-training."""
    split = arithmetic.split()
    assert split.pretraining[0] == (99, "*", 26)
    assert split.training[0] == (46, "-", 19)
    assert split.held_out[0] == (96, "+", 32)


def test_item_as_text() -> None:
    item = (37, "*", 48)
    assert arithmetic.question(item) == "what is 37 * 48?"
    assert arithmetic.expression(item) == "37 * 48"
    assert arithmetic.answer(item) == "1776"
    assert arithmetic.answer((12, "-", 34)) == "-22"


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("1776", True),
        ("37 * 48 is 1,776.", True),
        ("1776.0", True),
        ("about 1770", False),
        ("1776 or 1777", False),
        ("-1776", False),
        ("1776.5", False),
        ("37,48,1776", True),
        ("", False),
        ("none", False),
    ],
)
def test_the_last_number_counts(text: str, is_right: bool) -> None:
    assert arithmetic.is_right((37, "*", 48), text) == is_right


@given(st.sampled_from(arithmetic.split().held_out))
def test_the_answer_is_right(item: arithmetic.Item) -> None:
    a, symbol, b = item
    assert int(arithmetic.answer(item)) == OPERATIONS[symbol](a, b)
    assert arithmetic.is_right(item, f"{arithmetic.expression(item)}={arithmetic.answer(item)}")


@given(EXPRESSIONS)
def test_compute_knows_arithmetic(valued: Valued) -> None:
    text, value = valued
    assert arithmetic.compute(text) == str(value)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("1 / 2", "'/' is not allowed"),
        ("1.5 + 1", "'.' is not allowed"),
        ("1,000 + 1", "',' is not allowed"),
        ("__import__('os')", "'_' is not allowed"),
        ("9 ** 9 ** 9", "is not an expression of integers"),
        ("2(3)", "is not an expression of integers"),
        ("07 * 2", "is not an expression of integers"),
        ("(1 + 2", "is not an expression of integers"),
        ("", "is not an expression of integers"),
        ("()", "is not an expression of integers"),
        ("1 + " * 20 + "1", "has 81 characters; 60 are allowed"),
    ],
)
def test_compute_says_what_is_wrong(expression: str, said: str) -> None:
    assert said in arithmetic.compute(expression)


@given(st.text() | st.text("0123456789+-*() ") | st.text("(-", min_size=50, max_size=60))
def test_compute_never_raises(expression: str) -> None:
    assert arithmetic.compute(expression)
