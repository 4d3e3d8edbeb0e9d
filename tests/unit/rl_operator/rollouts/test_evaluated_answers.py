"""From the rollouts of an evaluation to what each item's answers are worth."""

from typing import Any

import pytest
from tests.unit.rl_operator.rollouts.made_rollouts import Record, group, lost, rollout, source, step

from rl_contract.rollout_records import GroupRecord
from rl_contract.status_metrics import EvaluatedFigure
from rl_operator.operator_errors import RefusedError
from rl_operator.rollouts.evaluated_answers import evaluated_answers, item_key
from rl_operator.rollouts.rollout_source import RolloutSteps

FIGURE = EvaluatedFigure(value=0.5, samples=4, step=3)


def asked(item: Any, *worths: float | None, **more: Any) -> Record:
    answers = (rollout(0.25, "ab", "evaluated", worth=worth) for worth in worths)
    return group(0, *answers, fate="evaluated", step=3, item=item, **more)


def key(item: Any = None, *pieces: str) -> str:
    return item_key(GroupRecord(fate="evaluated", item=item, prompt={"pieces": pieces}))


STEP: list[Record] = [
    step(3, {"trained": 1}), group(0, rollout(1.0)), lost(),
    asked("easy", 1.0, 1.0), asked("hard", 0.0, 0.0, sets=["main", "late"]), asked("other", 1.0, sets=["late"]),
    asked("easy", 1.0, greedy=True), asked("hard", 0.0, greedy=True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("figure", "answers"),
    [
        (FIGURE, {"easy": (1, 1), "hard": (0, 0)}),
        (EvaluatedFigure(metric="eval/late/percent_correct", value=1 / 3, step=3), {"hard": (0, 0), "other": (1,)}),
        (EvaluatedFigure(metric="eval/greedy_percent_correct", value=0.5, step=3), {"easy": (1,), "hard": (0,)}),
        (FIGURE.with_changes(samples=5, value=0.6), {"easy": (1, 1), "hard": (0, 0)}),  # one was not kept
    ],
)
def test_the_answers_behind_a_figure(figure: EvaluatedFigure, answers: dict[str, tuple[float, ...]]) -> None:
    found = evaluated_answers(RolloutSteps.of(source({"3-1": STEP, "4-1": STEP[3:4]})), figure)
    assert found == {key(item): worths for item, worths in answers.items()}


def test_what_a_newer_attempt_evaluated_takes_the_place_of_the_older() -> None:
    files = {"3-1": STEP, "3-2": [asked("easy", 0.0)], "3-3": [group(0, rollout(1.0))]}
    figure = FIGURE.with_changes(samples=1, value=0.0)
    assert evaluated_answers(RolloutSteps.of(source(files)), figure) == {key("easy"): (0,)}


@pytest.mark.parametrize(
    ("figure", "files", "why"),
    [
        (FIGURE, {}, "there are no rollouts in memory"),
        (FIGURE, {"4-1": STEP}, "there are no rollouts of step 3"),
        (FIGURE, {"3-1": STEP[:3]}, "no answers of its evaluation"),
        (FIGURE, {"3-1": [*STEP, asked("unscored", None)]}, "do not say what each answer counts as"),
        (FIGURE.with_changes(value=0.6), {"3-1": STEP}, "worth 0.500, and its figure is 0.600"),
        (FIGURE.with_changes(metric="eval/pass_at_4"), {"3-1": STEP}, "eval/pass_at_4 is no mean"),
        (FIGURE.with_changes(step=None), {"3-1": STEP}, "which step"),
    ],
)
def test_why_they_are_not_known(figure: EvaluatedFigure, files: dict[str, list[Record]], why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        evaluated_answers(RolloutSteps.of(source(files)), figure)


def test_what_one_item_is() -> None:
    assert key({"a": 1, "b": 2}, "x") == key({"b": 2, "a": 1}, "y"), "another model has other pieces"
    assert key({"a": 1}) != key({"a": 2})
    assert key(None, "so", "rt") == key(None, "sort")
    assert key("<Task at 0x7f01>", "sort") == key("<Task at 0x7f02>", "sort")
    assert key("long" * 300, "sort 1") != key("long" * 300, "sort 2"), "the file has its beginning only"
