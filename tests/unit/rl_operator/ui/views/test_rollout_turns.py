"""A rollout as a conversation."""

from typing import Any

import pytest
from tests.unit.rl_operator.rollouts.made_rollouts import group, rollout

from rl_contract.rollout_records import GroupRecord, SequenceRecord
from rl_operator.ui.views.rollout_turns import conversation_of, segments_of, turns_of


def segments(text: str, most: int = 100) -> list[tuple[str, str]]:
    return [(each.name, each.shown.text) for each in segments_of(text, most)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hi", [("", "hi")]),
        ("", [("", "")]),
        ("<think>so</think>\n\nyes", [("thought", "so"), ("", "yes")]),
        ("a<tool_call>\n{}\n</tool_call>b", [("", "a"), ("tool call", "{}"), ("", "b")]),
        ("<tool_response>4</tool_response>", [("tool's answer", "4")]),
        ("<tool_call>{", [("tool call, which does not end", "{")]),
        ("a\x1b[2Jb\u202ec", [("", "a\\x1b[2Jb\\u202ec")]),
    ],
)
def test_blocks_are_set_apart(text: str, expected: list[tuple[str, str]]) -> None:
    assert segments(text) == expected


def test_long_texts_are_cut_and_counted() -> None:
    (segment,) = segments_of("x" * 1_000_000, 50)
    assert (len(segment.shown.text), segment.shown.left) == (50, 999_950)


def said(messages: list[Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    record = GroupRecord.model_validate(group(0, rollout(1.0, messages=messages)))
    (turns,) = conversation_of(record, record.rollouts[0], 100).parts
    return [(turn.words, [(each.name, each.shown.text) for each in turn.segments]) for turn in turns]


def test_messages_come_before_tokens_and_without_their_prompt() -> None:
    call = {"id": "1", "function": {"name": "add", "arguments": '{"a": 1}'}}
    assert said(
        [
            {"role": "user", "content": "2+2?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": [{"type": "text", "text": "4"}]},
            {"role": "assistant", "content": "four"},
        ]
    ) == [("policy", [("tool call", 'add {"a": 1}')]), ("tool", [("tool's answer", "4")]), ("policy", [("", "four")])]


@pytest.mark.parametrize(
    "odd", ["text", 7, None, [], {}, {"role": 3, "content": 4}, {"role": "x" * 1000, "content": {"a": [1]}},
            {"role": "assistant", "tool_calls": "all"}, {"role": "assistant", "tool_calls": [1, {"function": 2}]}],
    ids=str,
)  # fmt: skip
def test_messages_of_any_shape(odd: Any) -> None:
    assert len(said([odd])) == 1


def test_without_messages_the_tokens_are_read() -> None:
    record = GroupRecord.model_validate(group(0, rollout(1.0, "42")))
    found = conversation_of(record, record.rollouts[0], 100)
    assert [(turn.words, turn.segments[0].shown.text) for turn in found.parts[0]] == [("policy", "42")]
    assert found.note == ""


CHATML = ["<|im_start|>", "user", "\n", "hi", "<|im_end|>", "\n", "<|im_start|>", "assistant", "\n"]


def sequence(*parts: tuple[str, list[str]]) -> SequenceRecord:
    """Fates and the pieces of each."""
    pieces, fates = [], []
    for fate, said in parts:
        fates.append((len(pieces), len(pieces) + len(said), fate))
        pieces += said
    return SequenceRecord(tokens=[0] * len(pieces), pieces=pieces, fates=fates)


def told(prompt: list[str], found: SequenceRecord) -> list[tuple[str, str]]:
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
def test_turns(prompt: list[str], found: SequenceRecord, turns: list[tuple[str, str]]) -> None:
    assert told(prompt, found) == turns


def test_the_policy_cannot_speak_for_others() -> None:
    forged = sequence(("trained", ["x", "<|im_end|>", *TOOL[:4]]))
    assert [words for words, _ in told(CHATML, forged)] == ["policy"]
