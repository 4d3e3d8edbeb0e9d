"""Word problems: the same everywhere, right by construction, and graded by a grader that is to be trusted."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.environments.bundled import gsm_synthetic
from tinker_atropos.environments.bundled.gsm_synthetic import SYSTEM_PROMPT, TEMPLATES, GsmSynthetic
from tinker_atropos.environments.items.grader_check import grade, grader_warnings

ITEMS = st.builds(gsm_synthetic.item, st.integers(0, 10**6), st.integers(0, 10**6))


def test_split_has_thousands_of_disjoint_questions_of_all_kinds() -> None:
    split = gsm_synthetic.split()
    training, held_out = ({each.question for each in part} for part in (split.training, split.held_out))
    assert len(training) > 8_000
    assert len(held_out) > 800
    assert not training & held_out
    for part in (split.training, split.held_out):
        assert {each.kind for each in part} == {template.kind for template in TEMPLATES}


def test_another_seed_trains_nothing_that_is_held_out() -> None:
    held_out = {each.question for each in gsm_synthetic.split().held_out}
    assert held_out.isdisjoint(each.question for each in gsm_synthetic.split(seed=1).training)


def test_an_item_never_changes() -> None:
    item = gsm_synthetic.item(0)
    assert item.question == (
        "Farid buys 10 boxes with 19 pencils in each, and gives 12 of them to Emma. "
        "How many pencils does Farid have left?"
    )
    assert gsm_synthetic.worked_solution(item) == "Bought: 10 * 19 = 190.\nLeft: 190 - 12 = 178.\nThe answer is 178."


@given(ITEMS)
def test_every_step_is_right(item: gsm_synthetic.WordProblem) -> None:
    assert 2 <= len(item.steps) <= 4
    assert "{" not in item.question + gsm_synthetic.worked_solution(item)
    for step in item.steps:
        found = re.fullmatch(r"[^:]+: (\d+) ([-+*/]) (\d+) = (\d+)\.", step)
        assert found, step
        left, symbol, right, result = int(found[1]), found[2], int(found[3]), int(found[4])
        assert {"+": left + right, "-": left - right, "*": left * right, "/": left / right}[symbol] == result


@given(ITEMS)
def test_numbers_of_the_solution_are_in_the_question(item: gsm_synthetic.WordProblem) -> None:
    known = set(re.findall(r"\d+", item.question))
    for step in item.steps:
        left, right, result = re.findall(r"\d+", step)
        assert {left, right} <= known
        known.add(result)
    assert str(item.answer) == result


@given(ITEMS, st.integers(0, 10**6))
def test_graded(item: gsm_synthetic.WordProblem, other: int) -> None:
    right = item.answer
    assert gsm_synthetic.graded(item, gsm_synthetic.worked_solution(item)) == 1
    assert gsm_synthetic.graded(item, rf"so \boxed{{{right:,}}}, not {right + 1}") == 1
    assert gsm_synthetic.graded(item, rf"\boxed{{{right + 1}}} or {right}") == 0
    assert gsm_synthetic.graded(item, f"{right} or {other}") == float(other == right)


@pytest.mark.parametrize("completion", ["", "no idea", r"\boxed{}", r"\boxed{x} 178", "178 179", "-178", "178.5"])
def test_other_answers_earn_nothing(completion: str) -> None:
    assert gsm_synthetic.graded(gsm_synthetic.item(0), completion) == 0


@given(ITEMS, st.text())
def test_any_completion_is_graded(item: gsm_synthetic.WordProblem, completion: str) -> None:
    assert gsm_synthetic.graded(item, completion) in {0, 1}


@pytest.fixture
def bare_gsm() -> GsmSynthetic:
    made: GsmSynthetic = object.__new__(GsmSynthetic)  # its rules need nothing that BaseEnv connects to
    return made


def test_prompt(bare_gsm) -> None:
    item = bare_gsm.held_out_items()[0]
    assert bare_gsm.prompt(item) == [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": item.question},
    ]


async def test_the_grader_is_to_be_trusted(bare_gsm) -> None:
    graded = await grade(bare_gsm, bare_gsm.held_out_items()[:50])
    assert {each.kind for each in graded} == {"empty", "wrong", "gold"}
    assert grader_warnings(graded, bare_gsm.is_correct) == []
