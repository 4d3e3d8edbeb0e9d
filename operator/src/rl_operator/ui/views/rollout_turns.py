"""A rollout as a conversation: whose words its tokens are, with tool calls, their answers and thoughts set apart. Pure.

Turns begin at special tokens of chat templates, and only at those that the policy was given: what it writes itself
cannot pretend to be somebody else's.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rl_contract.rollout_records import GroupRecord, RolloutRecord, SequenceRecord
from rl_operator.rollouts.rollout_figures import GIVEN, spans
from rl_operator.ui.views.page_text import ShownText, shown_lines, value_text

OPENERS: Final[Mapping[str, str]] = {
    "<|im_start|>": "\n",
    "<|start_header_id|>": "<|end_header_id|>",
    "<start_of_turn>": "\n",
    "<|start|>": "<|message|>",
    "<|im_user|>": "<|im_middle|>",
    "<|im_assistant|>": "<|im_middle|>",
    "<|im_system|>": "<|im_middle|>",
}
"""What a turn begins with, and what the name of its role ends with: ChatML, Llama, Gemma, Harmony, Kimi."""

ROLE_TOKENS: Final[Mapping[str, str]] = {
    "<｜User｜>": "user",
    "<｜Assistant｜>": "assistant",
    "[INST]": "user",
    "[/INST]": "assistant",
    "<|user|>": "user",
    "<|assistant|>": "assistant",
    "<|system|>": "system",
    "<|observation|>": "tool",
}
"""Tokens that are a role: DeepSeek, Mistral, GLM."""

ENDS: Final = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "</s>", "<eos>"}
)
"""What a turn ends with; readers of its text do without."""

ROLE_WORDS: Final[Mapping[str, str]] = {
    "assistant": "policy",
    "model": "policy",
    "policy": "policy",
    "user": "user",
    "human": "user",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
    "ipython": "tool",
    "given": "given",
}
"""For people, and for the style sheet."""

LONGEST_ROLE: Final = 8
"""Tokens of a role's name."""


@dataclass(frozen=True, slots=True)
class RoleSpan:
    """Tokens from `start` to before `end`. `text_start`: behind the name of the role."""

    role: str
    start: int
    text_start: int
    end: int

    @property
    def words(self) -> str:
        """A role that is not known goes by its name, in a few characters."""
        return ROLE_WORDS.get(self.role, self.role[:20] or "given")

    @property
    def kind(self) -> str:
        """The class of the style sheet."""
        return ROLE_WORDS.get(self.role, "given")


def is_given(sequence: SequenceRecord) -> list[bool]:
    """For each token, whether the policy did not sample it."""
    given: list[bool] = []
    for start, end, fate in spans(sequence):
        given += [fate in GIVEN] * (end - start)
    return given


def turns_of(prompt: Sequence[str], sequence: SequenceRecord) -> list[RoleSpan]:
    """The turns of the sequence; the `prompt` before it says whose turn it begins with. Without roles, what was given
    and what was sampled take turns.
    """
    told = [*prompt, *sequence.pieces]
    given = [True] * len(prompt) + is_given(sequence)
    begins = list(_beginnings(told, given)) or list(_changes(given, len(prompt)))
    first = len(prompt)
    return [_moved(turn, first) for turn in _between(begins, len(told)) if turn.end > first]


def _moved(turn: RoleSpan, first: int) -> RoleSpan:
    return RoleSpan(turn.role, max(turn.start, first) - first, max(turn.text_start, first) - first, turn.end - first)


def _between(begins: Iterable[tuple[int, int, str]], end: int) -> Iterator[RoleSpan]:
    """From where turns begin, where their text does, and their roles."""
    known = list(begins)
    if not known or known[0][0] > 0:
        known.insert(0, (0, 0, ""))
    for (start, text_start, role), (stop, _, _) in zip(known, [*known[1:], (end, end, "")], strict=True):
        if stop > start:
            yield RoleSpan(role, start, min(text_start, stop), stop)


def _beginnings(pieces: Sequence[str], given: Sequence[bool]) -> Iterator[tuple[int, int, str]]:
    for index, piece in enumerate(pieces):
        if not given[index]:
            continue
        if role := ROLE_TOKENS.get(piece):
            yield index, index + 1, role
        elif closer := OPENERS.get(piece):
            yield index, *_role_at(pieces, index + 1, closer)


def _role_at(pieces: Sequence[str], start: int, closer: str) -> tuple[int, str]:
    """Where the text begins, and the role. A name that does not end is none."""
    for at in range(start, min(start + LONGEST_ROLE, len(pieces))):
        if pieces[at].startswith(closer):
            return at + 1, "".join(pieces[start:at]).strip().split("<|")[0].lower()
    return start, ""


def _changes(given: Sequence[bool], first: int) -> Iterator[tuple[int, int, str]]:
    for index, each in enumerate(given):
        if index in (0, first) or each != given[index - 1]:
            yield index, index, "given" if each else "policy"


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
class ShownConversation:
    """`note`: where it is from, or what is left out; may be empty. One of `parts` for each sequence."""

    note: str
    parts: tuple[tuple[SaidTurn, ...], ...]


def conversation_of(group: GroupRecord, rollout: RolloutRecord, most: int) -> ShownConversation:
    """In at most so many characters a turn. The environment's messages, if it keeps them, else from the tokens. What
    came before the first answer is left out: it is the group's prompt.
    """
    if rollout.messages:
        messages = rollout.messages[_first_answer(rollout.messages) :]
        turns = tuple(_of_message(each, most) for each in messages[:MOST_TURNS])
        return ShownConversation(f"The messages as the environment kept them.{_left(len(messages))}", (turns,))
    parts = [_of_sequence(group.prompt.pieces, each, most) for each in rollout.sequences]
    several = "Later prompts did not continue the earlier ones: each part begins again." if len(parts) > 1 else ""
    longest = max((len(part) for part in parts), default=0)
    return ShownConversation(f"{several}{_left(longest)}", tuple(tuple(part[:MOST_TURNS]) for part in parts))


def _first_answer(messages: Sequence[object]) -> int:
    """Where the policy speaks first; 0 if it does not."""
    answers = (at for at, each in enumerate(messages) if isinstance(each, Mapping) and each.get("role") == "assistant")
    return next(answers, 0)


def _left(turns: int) -> str:
    return f" {turns - MOST_TURNS:,} more turns are not shown." if turns > MOST_TURNS else ""


def _of_sequence(prompt: Sequence[str], sequence: SequenceRecord, most: int) -> list[SaidTurn]:
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


def _of_message(message: object, most: int) -> SaidTurn:
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


def _content_segments(content: object, most: int, *, is_tool: bool) -> Iterator[Segment]:
    if content is None or content == "":
        return
    text = _text(content)
    if is_tool:
        yield Segment("tool's answer", shown_lines(text, most))
    else:
        yield from segments_of(text, most)


def _text(content: object) -> str:
    """Texts, and the texts among parts; other parts as JSON."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else [content]
    return "\n".join(
        part["text"] if isinstance(part, Mapping) and isinstance(part.get("text"), str) else _json(part)
        for part in parts
    )


def _call_text(call: object) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return _json(call)
    arguments = function.get("arguments")
    return f"{function.get('name')} {arguments if isinstance(arguments, str) else _json(arguments)}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
