"""A grader is checked before it is trusted."""

import logging
from pathlib import Path

import pytest
from tests.unit.tinker_atropos.environments.scripted_environment import Capitals, alone

from tinker_atropos.environments.items.grader_check import warnings_about_grader

GRADERS = {
    "a good one": (lambda item, text: float(text == item.upper()), ()),
    "pays a little for the format": (lambda item, text: 1.0 if text == item.upper() else 0.01, ()),
    "pays for nothing": (lambda item, text: float(text in ("", item.upper())), ("1 for the worthless answer ''",)),
    "pays for anything": (
        lambda _item, text: float(bool(text)),
        ("1 for the worthless answer 'this is not the answer'",),
    ),
    "rejects the right answer": (lambda _item, _text: 0.25, ("gives 0.25 to the right answer 'C' (2 of 2 items)",)),
    "pays for all and rejects": (lambda _item, _text: 0.9, ("answer ''", "not the answer", "right answer 'C'")),
}


@pytest.mark.parametrize(("grader", "expected"), GRADERS.values(), ids=GRADERS)
async def test_warnings(grader, expected):
    class Graded(Capitals):
        def score(self, item, completion):
            return grader(item, completion)

    warnings = await warnings_about_grader(alone(Graded), Path(__file__))
    assert len(warnings) == len(expected)
    for warning, part in zip(warnings, expected, strict=True):
        assert part in warning


async def test_where_nothing_is_the_right_answer_it_may_be_paid_for():
    class Silence(Capitals):
        def gold_answer(self, item):  # noqa: ARG002 -- of all items
            return ""

        def score(self, item, completion):  # noqa: ARG002 -- of all items
            return float(not completion)

    assert await warnings_about_grader(alone(Silence), Path(__file__)) == ()


async def test_a_grader_that_raises_is_reported_and_ends_nothing(caplog):
    class Broken(Capitals):
        def score(self, item, completion):
            raise KeyError("answer", item, completion)

    with caplog.at_level(logging.WARNING):
        assert await warnings_about_grader(alone(Broken), Path(__file__)) == ()
    assert "the grader could not be checked: KeyError: ('answer', 'c', '') (test_grader_check.py" in caplog.text
