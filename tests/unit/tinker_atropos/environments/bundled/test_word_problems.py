"""Word problems: the same everywhere, right by construction, and graded by the last number."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.environments.bundled import word_problems
from tinker_atropos.environments.bundled.word_problems import TEMPLATES

ITEMS = st.builds(word_problems.item, st.integers(0, 10**6), st.integers(0, 10**6))


def test_split_has_thousands_of_disjoint_questions_of_all_kinds() -> None:
    split = word_problems.split()
    training, held_out = ({each.question for each in part} for part in (split.training, split.held_out))
    assert len(training) > 8_000
    assert len(held_out) > 800
    assert not training & held_out
    for part in (split.training, split.held_out):
        assert {each.kind for each in part} == {template.kind for template in TEMPLATES}


def test_another_seed_trains_nothing_that_is_held_out() -> None:
    held_out = {each.question for each in word_problems.split().held_out}
    assert held_out.isdisjoint(each.question for each in word_problems.split(seed=1).training)


def test_an_item_never_changes() -> None:
    item = word_problems.item(0)
    assert word_problems.question(item) == (
        "Farid buys 10 boxes with 19 pencils in each, and gives 12 of them to Emma. "
        "How many pencils does Farid have left?"
    )
    assert word_problems.worked_solution(item) == "Bought: 10 * 19 = 190.\nLeft: 190 - 12 = 178.\nThe answer is 178."


@given(ITEMS)
def test_every_step_is_right(item: word_problems.WordProblem) -> None:
    assert 2 <= len(item.steps) <= 4
    assert "{" not in item.question + word_problems.worked_solution(item)
    for step in item.steps:
        found = re.fullmatch(r"[^:]+: (\d+) ([-+*/]) (\d+) = (\d+)\.", step)
        assert found, step
        left, symbol, right, result = int(found[1]), found[2], int(found[3]), int(found[4])
        assert {"+": left + right, "-": left - right, "*": left * right, "/": left / right}[symbol] == result


@given(ITEMS)
def test_numbers_of_the_solution_are_in_the_question(item: word_problems.WordProblem) -> None:
    known = set(re.findall(r"\d+", item.question))
    for step in item.steps:
        left, right, result = re.findall(r"\d+", step)
        assert {left, right} <= known
        known.add(result)
    assert str(word_problems.answer(item)) == result


@given(ITEMS, st.integers(0, 10**6))
def test_graded(item: word_problems.WordProblem, other: int) -> None:
    right = word_problems.answer(item)
    assert word_problems.graded(item, word_problems.worked_solution(item)) == 1
    assert word_problems.graded(item, rf"so \boxed{{{right:,}}}, not {right + 1}") == 1
    assert word_problems.graded(item, rf"\boxed{{{right + 1}}} or {right}") == 0
    assert word_problems.graded(item, f"{right} or {other}") == float(other == right)


@pytest.mark.parametrize("completion", ["", "no idea", r"\boxed{}", r"\boxed{x} 178", "178 179", "-178", "178.5"])
def test_other_answers_earn_nothing(completion: str) -> None:
    assert word_problems.graded(word_problems.item(0), completion) == 0


@given(ITEMS, st.text())
def test_any_completion_is_graded(item: word_problems.WordProblem, completion: str) -> None:
    assert word_problems.graded(item, completion) in {0, 1}
