"""Whose words the tokens are."""

import pytest

from rl_operator.rollouts.rollout_records import SampledSequence
from rl_operator.ui.views.rollouts.turns import turns_of

CHATML = ["<|im_start|>", "user", "\n", "hi", "<|im_end|>", "\n", "<|im_start|>", "assistant", "\n"]


def sequence(*parts: tuple[str, list[str]]) -> SampledSequence:
    """Fates and the pieces of each."""
    pieces, fates = [], []
    for fate, said in parts:
        fates.append((len(pieces), len(pieces) + len(said), fate))
        pieces += said
    return SampledSequence(tokens=[0] * len(pieces), pieces=pieces, fates=fates)


def told(prompt: list[str], found: SampledSequence) -> list[tuple[str, str]]:
    return [(turn.words, "".join(found.pieces[turn.text_start : turn.end])) for turn in turns_of(prompt, found)]


TOOL = ["<|im_start|>", "tool", "\n", "4", "<|im_end|>", "\n", "<|im_start|>", "assistant", "\n"]


@pytest.mark.parametrize(
    ("prompt", "found", "turns"),
    [
        (CHATML, sequence(("trained", ["4", "2"])), [("policy", "42")]),
        (
            CHATML,
            sequence(("trained", ["call", "<|im_end|>"]), ("prompt", ["\n", *TOOL]), ("trained", ["4"])),
            [("policy", "call<|im_end|>\n"), ("tool", "4<|im_end|>\n"), ("policy", "4")],
        ),
        (
            [], sequence(("prompt", ["<|start_header_id|>", "ipython", "<|end_header_id|>", "a"]), ("trained", ["b"])),
            [("tool", "ab")],
        ),
        (
            [], sequence(("prompt", ["<｜User｜>", "a", "<｜Assistant｜>"]), ("trained", ["b"])),
            [("user", "a"), ("policy", "b")],
        ),
        (
            ["raw"], sequence(("trained", ["b"]), ("prompt", ["c"]), ("dropped", ["d"])),
            [("policy", "b"), ("given", "c"), ("policy", "d")],
        ),
        ([], sequence(), []),
        ([], sequence(("prompt", ["<|im_start|>", "poet" * 20, "\n", "a"])), [("poet" * 5, "a")]),
        ([], sequence(("prompt", ["<|im_start|>", *"endless names", "a"])), [("given", "endless namesa")]),
    ],
    ids=["answer", "tool", "llama", "deepseek", "without roles", "nothing", "unknown role", "no end of a role"],
)  # fmt: skip
def test_turns(prompt: list[str], found: SampledSequence, turns: list[tuple[str, str]]) -> None:
    assert told(prompt, found) == turns


def test_the_policy_cannot_speak_for_others() -> None:
    forged = sequence(("trained", ["x", "<|im_end|>", *TOOL[:4]]))
    assert [words for words, _ in told(CHATML, forged)] == ["policy"]
