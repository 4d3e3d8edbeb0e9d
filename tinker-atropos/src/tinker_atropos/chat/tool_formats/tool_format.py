"""What a tool format can do, whatever its syntax: find calls in an answer, write them, and explain them to a model."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Tools = Sequence[Mapping[str, Any]]
"""In OpenAI's form: `{"type": "function", "function": {name, description, parameters}}`."""

THOUGHT_ENDS = "</think>"
THOUGHT_MARK = re.compile("</?think>")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments` is the JSON text of an object, as on OpenAI's wire."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """An answer without its calls. An attempted call that cannot be understood stays in `content`, and `errors` has a
    sentence about it.
    """

    content: str
    calls: tuple[ToolCall, ...] = ()
    errors: tuple[str, ...] = ()


class MalformedCallError(ValueError):
    """Something looks like a call and is none; the message says what is wrong. `end`: where the attempt ends."""

    def __init__(self, message: str, end: int) -> None:
        super().__init__(message)
        self.end = end


class CallSyntax(Protocol):
    """How one call is written."""

    @property
    def begins(self) -> re.Pattern[str]:
        """Where a call, or an attempt at one, begins."""
        ...

    def read(self, text: str, start: int, tools: Tools) -> tuple[list[ToolCall], int]:
        """The calls that begin at `start`, and where they end. Raises MalformedCallError."""
        ...

    def write(self, call: ToolCall, index: int) -> str: ...

    def opening(self, name: str | None) -> str:
        """How a call (of that tool) begins, up to what the model is to decide."""
        ...


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """`section` is written around all calls of an answer, `between` between them."""

    name: str
    syntax: CallSyntax
    section: tuple[str, str] = ("", "")
    between: str = "\n"

    def parse(self, text: str, tools: Tools = ()) -> ParsedAnswer:
        """Never raises. Calls are looked for after the thinking; thinking that does not end has none."""
        thought, answer = "", text
        while (mark := self._mark_outside_calls(answer, tools)) is not None:
            _, ends, answer = answer[mark:].partition(THOUGHT_ENDS)
            if not ends:
                return ParsedAnswer(text)
            thought = text[: len(text) - len(answer)]
        said, calls, errors = self._scanned(answer, tools)
        if not calls:
            return ParsedAnswer(text, (), errors)
        return ParsedAnswer(thought + said, calls, errors)

    def _mark_outside_calls(self, answer: str, tools: Tools) -> int | None:
        """Where thinking first begins or ends. Within a call, a mark is part of an argument. A prompt may have begun
        the thinking, so it can end without having begun here.
        """
        position = 0
        while mark := THOUGHT_MARK.search(answer, position):
            begun = self.syntax.begins.search(answer, position, mark.start())
            if begun is None:
                return mark.start()
            try:
                _, position = self.syntax.read(answer, begun.start(), tools)
            except MalformedCallError:  # an attempt may well be a thought about calls
                position = max(begun.end(), position + 1)
        return None

    def _scanned(self, answer: str, tools: Tools) -> tuple[str, tuple[ToolCall, ...], tuple[str, ...]]:
        kept: list[str] = []
        calls: list[ToolCall] = []
        errors: list[str] = []
        position = 0
        while found := self.syntax.begins.search(answer, position):
            try:
                read, end = self.syntax.read(answer, found.start(), tools)
                kept.append(answer[position : found.start()])
                calls += read
            except MalformedCallError as error:
                end = max(error.end, found.end())
                kept.append(answer[position:end])
                errors.append(str(error))
            if end == position == found.start():
                break
            position = end
        kept.append(answer[position:])
        return self._without_section(kept), tuple(calls), tuple(errors)

    def _without_section(self, kept: Sequence[str]) -> str:
        """What was said around the calls: whitespace and markup between them says nothing."""
        begin, end = self.section
        texts = (part.replace(begin, "").replace(end, "").strip() for part in kept)
        return "\n".join(filter(None, texts))

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """What the model would have written."""
        begin, end = self.section
        return begin + self.between.join(self.syntax.write(call, index) for index, call in enumerate(calls)) + end

    def render_tools(self, tools: Tools) -> str:
        """For the system prompt of a model whose chat template shows no tools."""
        schemas = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
        example = self.render_calls([ToolCall("NAME", '{"ARGUMENT": "VALUE"}')])
        return f"You can call these functions:\n{schemas}\n\nTo call one, write:\n{example}"

    def opening(self, name: str | None = None) -> str:
        """How an answer begins that must be a call (of that tool)."""
        return self.section[0] + self.syntax.opening(name)


def checked_call(name: object, arguments: object, tools: Tools, end: int) -> ToolCall:
    """Raises MalformedCallError for what no program could call."""
    if not isinstance(name, str) or not name:
        raise MalformedCallError("the call names no function: its name must be a string", end)
    known = [str(tool["function"]["name"]) for tool in tools]
    if known and name not in known:
        raise MalformedCallError(f"the call is of {name!r}, which does not exist; there are: {', '.join(known)}", end)
    if not isinstance(arguments, dict):
        raise MalformedCallError(f"the arguments of {name} are not an object: {json.dumps(arguments)[:60]}", end)
    return ToolCall(name, json_text(arguments))


def json_text(value: object) -> str:
    """Readable, unless it has half of a surrogate pair, which no wire takes."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text
