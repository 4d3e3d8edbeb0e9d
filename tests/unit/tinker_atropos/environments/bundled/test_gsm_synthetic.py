"""Word problems as an environment: what is asked, and that its grader is to be trusted."""

import pytest

from tinker_atropos.environments.bundled.gsm_synthetic import SYSTEM_PROMPT, GsmSynthetic
from tinker_atropos.environments.items.grader_check import grade, grader_warnings


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


def test_held_out_questions_are_never_trained(bare_gsm) -> None:
    training, held_out = (
        set(map(bare_gsm.question, items)) for items in (bare_gsm.training_items(), bare_gsm.held_out_items())
    )
    assert len(training) > 8_000
    assert len(held_out) > 800
    assert not training & held_out


async def test_the_grader_is_to_be_trusted(bare_gsm) -> None:
    graded = await grade(bare_gsm, bare_gsm.held_out_items()[:50])
    assert {each.kind for each in graded} == {"empty", "wrong", "gold"}
    assert grader_warnings(graded, bare_gsm.is_correct) == []


def test_the_box_counts_and_else_the_last_number(bare_gsm) -> None:
    item = bare_gsm.training_items()[0]
    assert bare_gsm.score(item, rf"\boxed{{{item.answer}}}, and not {item.answer + 1}") == 1.0
    assert bare_gsm.score(item, f"So it is {item.answer}.") == 1.0
    assert bare_gsm.score(item, f"It is {item.answer}, or {item.answer + 1}.") == 0.0
