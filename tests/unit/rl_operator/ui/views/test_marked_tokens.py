"""Tokens as they are shown: turns, runs, and numbers for a script."""

import json
import math

import pytest
from tests.unit.rl_operator.rollouts.made_rollouts import rollout

from rl_contract.rollout_records import RolloutRecord, SequenceRecord
from rl_operator.ui.views.marked_tokens import (
    TokenMarking,
    advantage_mark,
    gap_mark,
    legend_of,
    marks_of,
    shown_sequence,
    surprise_mark,
)

SEQUENCE = SequenceRecord(
    tokens=[7, 8, 9, 10, 11],
    pieces=["a", "ü", "", "\x1b", "z"],
    logprobs=[-1.0, float("nan"), None, -0.5, -0.25],
    trained_logprobs=[-1.5, None, None, -0.5, -0.25],
    policy_steps=[(0, 2, 3), (3, 5, 4)],
    fates=[(0, 1, "trained"), (1, 4, "muted"), (4, 5, "eaten")],
)
ROLLOUT = RolloutRecord(reward=1.0, advantage=0.5, sequences=[SEQUENCE])


def test_runs_are_cut_by_fate_and_policy() -> None:
    shown = shown_sequence((), ROLLOUT, SEQUENCE, TokenMarking("advantage", 0.5, 100))
    (turn,) = shown.turns
    assert [(run.fate, run.policy, run.tokens) for run in turn.runs] == [
        ("trained", 3, (("a", "m8"),)),
        ("muted", 3, (("ü", "m8"),)),
        ("muted", None, (("·", "m8 odd"),)),
        ("muted", 4, (("\\x1b", "m8 odd"),)),
        ("unknown", 4, (("z", "m8"),)),
    ]
    assert turn.words == ""
    assert "set_advantage_to_zero" in turn.runs[1].sentence


def test_numbers_are_of_the_tokens_that_are_shown() -> None:
    shown = shown_sequence((), ROLLOUT, SEQUENCE, TokenMarking("gap", 0.5, 3))
    assert (shown.shown, shown.total) == (3, 5)
    assert json.loads(shown.numbers) == {"id": [7, 8, 9], "a": 0.5, "q": [-1.0, None, None], "p": [-1.5, None, None]}
    assert sum(len(run.tokens) for run in shown.turns[0].runs) == 3


@pytest.mark.parametrize(
    ("value", "largest", "mark"),
    [
        (1.0, 1.0, "m8"), (-1.0, 1.0, "m0"), (0.0, 1.0, "m4"), (0.5, 1.0, "m6"), (-0.25, 1.0, "m3"), (1e-9, 1.0, "m5"),
        (None, 1.0, ""), (math.nan, 1.0, ""), (math.inf, 1.0, ""), (0.0, 0.0, "m4"),
    ],
)  # fmt: skip
def test_advantages_are_measured_by_the_largest(value: float | None, largest: float, mark: str) -> None:
    assert advantage_mark(value, largest) == mark


@pytest.mark.parametrize(
    ("sampled", "trained", "mark"),
    [(-1.0, -1.0, "m0"), (-1.0, -1.15, "m3"), (-9.0, -1.0, "m8"), (None, -1.0, ""), (-1.0, None, "")],
)
def test_gaps_have_fixed_bounds(sampled: float | None, trained: float | None, mark: str) -> None:
    assert gap_mark(sampled, trained) == mark


@pytest.mark.parametrize(("sampled", "mark"), [(0.0, "m0"), (-0.3, "m3"), (-7.0, "m8"), (None, ""), (math.nan, "")])
def test_surprise_has_fixed_bounds(sampled: float | None, mark: str) -> None:
    assert surprise_mark(sampled) == mark


@pytest.mark.parametrize(
    ("color", "marks"),
    [
        ("advantage", ["", "", "m8", "m8"]),
        ("gap", ["", "", "m5", "m5"]),
        ("surprise", ["", "", "m5", "m5"]),
        ("fate", [""] * 4),
    ],
)
def test_what_was_given_is_not_marked(color: str, marks: list[str]) -> None:
    answer = RolloutRecord.model_validate(rollout(1.0, "ab", given="xy", gap=0.5) | {"advantage": 0.5})
    assert list(marks_of(color, answer, answer.sequences[0], 0.5)) == marks


@pytest.mark.parametrize("color", ["advantage", "gap", "surprise"])
def test_the_legend_has_all_marks(color: str) -> None:
    assert [each.mark for each in legend_of(color, 0.5)] == [f"m{number}" for number in range(9)]


def test_no_legend_for_what_is_not_there() -> None:
    assert legend_of("advantage", 0.0) == legend_of("fate", 1.0) == ()
