"""A rollout as a conversation: who said what, with tool calls, their answers and thoughts set apart. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rl_operator.rollouts.rollout_records import GroupRecord, Rollout, SampledSequence
from rl_operator.ui.views.page_text import ShownText, shown_lines, value_text
from rl_operator.ui.views.rollouts.turns import ENDS, ROLE_WORDS, turns_of

BLOCKS: Final = (
    ("thought", "<think>", "</think>"),
    ("tool call", "<tool_call>", "</tool_call>"),
    ("tool call", "<longcat_tool_call>", "</longcat_tool_call>"),
    ("tool call", "<|tool_call_begin|>", "<|tool_call_end|>"),
    ("tool call", "<function_calls>", "</function_calls>"),
    ("tool's answer", "<tool_response>", "</tool_response>"),
)
"""What is set apart within a turn: its name, beginning and end."""

_BLOCK: Final = re.compile("|".join(re.escape(begin) for _, begin, _ in BLOCKS))
_OF_BEGIN: Final = {begin: (name, end) for name, begin, end in BLOCKS}

MOST_TURNS: Final = 200


@dataclass(frozen=True, slots=True)
class Segment:
    """`name`: of a block, with what is odd about it; empty for plain text."""

    name: str
    shown: ShownText


@dataclass(frozen=True, slots=True)
class SaidTurn:
    """`words`: who; `kind`: for the style sheet."""

    words: str
    kind: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """`note`: where it is from, or what is left out; may be empty. One of `parts` for each sequence."""

    note: str
    parts: tuple[tuple[SaidTurn, ...], ...]


def conversation_of(group: GroupRecord, rollout: Rollout, most: int) -> Conversation:
    """In at most so many characters a turn. The environment's messages, if it keeps them, else from the tokens. What
    came before the first answer is left out: it is the group's prompt.
    """
    if rollout.messages:
        messages = rollout.messages[_first_answer(rollout.messages) :]
        turns = tuple(_of_message(each, most) for each in messages[:MOST_TURNS])
        return Conversation(f"The messages as the environment kept them.{_left(len(messages))}", (turns,))
    parts = [_of_sequence(group.prompt.pieces, each, most) for each in rollout.sequences]
    several = "Later prompts did not continue the earlier ones: each part begins again." if len(parts) > 1 else ""
    longest = max((len(part) for part in parts), default=0)
    return Conversation(f"{several}{_left(longest)}", tuple(tuple(part[:MOST_TURNS]) for part in parts))


def _first_answer(messages: Sequence[Any]) -> int:
    """Where the policy speaks first; 0 if it does not."""
    answers = (at for at, each in enumerate(messages) if isinstance(each, Mapping) and each.get("role") == "assistant")
    return next(answers, 0)


def _left(turns: int) -> str:
    return f" {turns - MOST_TURNS:,} more turns are not shown." if turns > MOST_TURNS else ""


def _of_sequence(prompt: Sequence[str], sequence: SampledSequence, most: int) -> list[SaidTurn]:
    said = []
    for turn in turns_of(prompt, sequence):
        pieces = sequence.pieces[turn.text_start : turn.end]
        text = "".join(piece for piece in pieces if piece not in ENDS).strip("\n")
        said.append(SaidTurn(turn.words, turn.kind, tuple(segments_of(text, most))))
    return said


def segments_of(text: str, most: int) -> Iterator[Segment]:
    """A block that does not end goes to the end of the text."""
    at = 0
    while found := _BLOCK.search(text, at):
        if before := text[at : found.start()].strip("\n"):
            yield Segment("", shown_lines(before, most))
        name, end = _OF_BEGIN[found[0]]
        stop = text.find(end, found.end())
        content = text[found.end() : stop if stop >= 0 else len(text)].strip("\n")
        yield Segment(name if stop >= 0 else f"{name}, which does not end", shown_lines(content, most))
        at = stop + len(end) if stop >= 0 else len(text)
    if (rest := text[at:].strip("\n")) or at == 0:
        yield Segment("", shown_lines(rest, most))


def _of_message(message: Any, most: int) -> SaidTurn:
    """Chat messages as OpenAI's API has them; anything else as the JSON that it is."""
    if not isinstance(message, Mapping):
        return SaidTurn("message", "given", (Segment("", shown_lines(_json(message), most)),))
    role = str(message.get("role") or "")
    words = ROLE_WORDS.get(role, value_text(role)[:20] or "message")
    segments = list(_content_segments(message.get("content"), most, is_tool=words == "tool"))
    if thought := message.get("reasoning_content"):
        segments.insert(0, Segment("thought", shown_lines(_text(thought), most)))
    calls = message.get("tool_calls") or ()
    listed = calls if isinstance(calls, Sequence) and not isinstance(calls, str) else (calls,)
    segments += [Segment("tool call", shown_lines(_call_text(call), most)) for call in listed]
    return SaidTurn(words, ROLE_WORDS.get(role, "given"), tuple(segments))


def _content_segments(content: Any, most: int, *, is_tool: bool) -> Iterator[Segment]:
    if content is None or content == "":
        return
    text = _text(content)
    if is_tool:
        yield Segment("tool's answer", shown_lines(text, most))
    else:
        yield from segments_of(text, most)


def _text(content: Any) -> str:
    """Texts, and the texts among parts; other parts as JSON."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else [content]
    return "\n".join(
        part["text"] if isinstance(part, Mapping) and isinstance(part.get("text"), str) else _json(part)
        for part in parts
    )


def _call_text(call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return _json(call)
    arguments = function.get("arguments")
    return f"{function.get('name')} {arguments if isinstance(arguments, str) else _json(arguments)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
