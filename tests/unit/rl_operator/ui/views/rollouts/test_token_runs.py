"""Tokens as they are shown: turns, runs, and numbers for a script."""

import json

from rl_operator.rollouts.rollout_records import Rollout, SampledSequence
from rl_operator.ui.views.rollouts.token_runs import TokenMarking, shown_sequence

SEQUENCE = SampledSequence(
    tokens=[7, 8, 9, 10, 11],
    pieces=["a", "ü", "", "\x1b", "z"],
    logprobs=[-1.0, float("nan"), None, -0.5, -0.25],
    trained_logprobs=[-1.5, None, None, -0.5, -0.25],
    policy_steps=[(0, 2, 3), (3, 5, 4)],
    fates=[(0, 1, "trained"), (1, 4, "muted"), (4, 5, "eaten")],
)
ROLLOUT = Rollout(reward=1.0, advantage=0.5, sequences=[SEQUENCE])


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
