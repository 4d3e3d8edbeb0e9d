"""Word problems as an environment: what is asked, and that its grader is to be trusted."""

import pytest

from tinker_atropos.environments.bundled.gsm_synthetic import SYSTEM_PROMPT, GsmSynthetic
from tinker_atropos.environments.items.grader_check import grade, grader_warnings


@pytest.fixture
def environment() -> GsmSynthetic:
    made: GsmSynthetic = object.__new__(GsmSynthetic)  # its rules need nothing that BaseEnv connects to
    return made


def test_prompt(environment) -> None:
    item = environment.held_out_items()[0]
    assert environment.prompt(item) == [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": item.question},
    ]


def test_held_out_questions_are_never_trained(environment) -> None:
    training, held_out = (
        set(map(environment.question, items)) for items in (environment.training_items(), environment.held_out_items())
    )
    assert len(training) > 8_000
    assert len(held_out) > 800
    assert not training & held_out


async def test_the_grader_is_to_be_trusted(environment) -> None:
    graded = await grade(environment, environment.held_out_items()[:50])
    assert {each.kind for each in graded} == {"empty", "wrong", "gold"}
    assert grader_warnings(graded, environment.is_correct) == []


def test_the_box_counts_and_else_the_last_number(environment) -> None:
    item = environment.training_items()[0]
    assert environment.score(item, rf"\boxed{{{item.answer}}}, and not {item.answer + 1}") == 1.0
    assert environment.score(item, f"So it is {item.answer}.") == 1.0
    assert environment.score(item, f"It is {item.answer}, or {item.answer + 1}.") == 0.0
