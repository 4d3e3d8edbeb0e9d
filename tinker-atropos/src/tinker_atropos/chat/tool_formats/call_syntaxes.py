"""The two ways in which models write a call: a JSON text between marks, and arguments between tags of their own."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from tinker_atropos.chat.tool_formats.tool_format import MalformedCallError, ToolCall, Tools, checked_call


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
_SPACE = re.compile(r"\s*")


def read_json(text: str, start: int, end: int) -> tuple[Any, int]:
    """The JSON value at `start`, and where it ends. Raises MalformedCallError, whose attempt ends at `end`."""
    begin = _SPACE.match(text, start).end()  # type: ignore[union-attr]  # it matches anywhere
    try:
        return _DECODER.raw_decode(text, begin)
    except RecursionError:
        raise MalformedCallError("the call is nested too deeply", end) from None
    except json.JSONDecodeError as error:
        raise MalformedCallError(
            f"the call is not JSON: {error.msg} at character {error.pos - begin + 1}", end
        ) from None
    except ValueError as error:
        raise MalformedCallError(f"the call is not JSON: {error}", end) from None


@dataclass(frozen=True, slots=True)
class JsonCalls:
    """`head`, JSON, `tail`. The name is the head's group `name`; without it the JSON is an object with a name and,
    under one of `keys`, its arguments, or a list of such objects. `marks` is what is written: before the name, before
    and after the JSON. `ends` is searched for to find the end of a malformed call.
    """

    head: re.Pattern[str]
    tail: re.Pattern[str]
    marks: tuple[str, str, str]
    begins: re.Pattern[str]
    ends: str = ""
    keys: tuple[str, ...] = ("arguments", "parameters")

    def read(self, text: str, start: int, tools: Tools) -> tuple[list[ToolCall], int]:
        end = self._attempt_ends(text, start)
        head = self.head.match(text, start)
        if head is None:
            raise MalformedCallError(f"the call does not begin like {self.write(EXAMPLE, 0)!r}", end)
        value, after = read_json(text, head.end(), end)
        tail = self.tail.match(text, after)
        if tail is None:
            raise MalformedCallError(f"the call does not end with {self.marks[2].strip()!r}", end)
        if name := head.groupdict().get("name"):
            return [checked_call(name.strip(), value, tools, tail.end())], tail.end()
        objects = value if isinstance(value, list) else [value]
        return [self._call(each, tools, tail.end()) for each in objects], tail.end()

    def _call(self, value: Any, tools: Tools, end: int) -> ToolCall:
        if not isinstance(value, dict):
            raise MalformedCallError(f"the call is not an object with a name and {self.keys[0]}", end)
        arguments: Any = next((value[key] for key in self.keys if key in value), {})
        if isinstance(arguments, str):  # some models encode them twice
            arguments, _ = read_json(arguments, 0, end)
        return checked_call(value.get("name"), arguments, tools, end)

    def _attempt_ends(self, text: str, start: int) -> int:
        """Where the next call begins, or what is between marks ends."""
        found = text.find(self.ends, start) if self.ends else -1
        following = self.begins.search(text, start + 1)
        ends = [found + len(self.ends)] if found >= 0 else []
        return min([*ends, *([following.start()] if following else []), len(text)])

    def write(self, call: ToolCall, index: int) -> str:
        before_name, before, after = (mark.format(index=index) for mark in self.marks)
        if "name" in self.head.groupindex:
            return f"{before_name}{call.name}{before}{call.arguments}{after}"
        return f'{before_name}{{"name": {json.dumps(call.name)}, "{self.keys[0]}": {call.arguments}}}{after}'

    def opening(self, name: str | None) -> str:
        before_name, before, _ = (mark.format(index=0) for mark in self.marks)
        if "name" in self.head.groupindex:
            return before_name + (f"{name}{before}" if name else "")
        return before_name + (f'{{"name": {json.dumps(name)}, "{self.keys[0]}": ' if name else '{"name": "')


EXAMPLE = ToolCall("NAME", "{}")


@dataclass(frozen=True, slots=True)
class TaggedCalls:
    """`name` (with a group of that name), each argument as in `argument` (with the groups `key` and `value`), `end`.
    `marks` is what is written: before and after the name, before and after a key, after a value, and at the end.

    A value is a text if its schema says string, else JSON; without a schema it is JSON or else a text. A text that
    contains the tag that closes a value cannot be written.
    """

    begins: re.Pattern[str]
    name: re.Pattern[str]
    argument: re.Pattern[str]
    end: re.Pattern[str]
    marks: tuple[str, str, str, str, str, str]

    def read(self, text: str, start: int, tools: Tools) -> tuple[list[ToolCall], int]:
        found = self.name.match(text, start)
        attempt_ends = self._attempt_ends(text, found.end() if found else start + 1)
        name = found["name"].strip() if found else ""
        if found is None or not name:
            raise MalformedCallError("the call names no function", attempt_ends)
        schemas, arguments, position = _schemas(name, tools), dict[str, Any](), found.end()
        while each := self.argument.match(text, position):
            key, position = each["key"].strip(), each.end()
            arguments[key] = _value(key, each["value"], schemas, attempt_ends)
        closed = self.end.match(text, position)
        if closed is None:
            rest = text[position:attempt_ends].strip()[:40]
            raise MalformedCallError(
                f"the call of {name} goes on with {rest!r}, which is neither an argument nor {self.marks[5]!r}",
                attempt_ends,
            )
        return [checked_call(name, arguments, tools, closed.end())], closed.end()

    def _attempt_ends(self, text: str, after: int) -> int:
        closed, following = self.end.search(text, after), self.begins.search(text, after)
        return min(each for each in (closed and closed.end(), following and following.start(), len(text)) if each)

    def write(self, call: ToolCall, index: int) -> str:  # noqa: ARG002 -- calls are not numbered in this syntax
        before_name, after_name, before_key, after_key, after_value, end = self.marks
        arguments = "".join(
            f"{before_key}{key}{after_key}{_written(value)}{after_value}"
            for key, value in json.loads(call.arguments).items()
        )
        return f"{before_name}{call.name}{after_name}{arguments}{end}"

    def opening(self, name: str | None) -> str:
        return self.marks[0] + (name + self.marks[1] if name else "")


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _schemas(name: str, tools: Tools) -> Mapping[str, Any]:
    """Of the arguments of a function."""
    for tool in tools:
        if tool["function"]["name"] == name:
            properties = (tool["function"].get("parameters") or {}).get("properties")
            return properties if isinstance(properties, dict) else {}
    return {}


def _value(key: str, text: str, schemas: Mapping[str, Any], end: int) -> Any:
    schema = schemas.get(key)
    types = schema.get("type") if isinstance(schema, dict) else None
    allowed = [types] if isinstance(types, str) else types if isinstance(types, list) else []
    if "string" in allowed and not (text == "null" and "null" in allowed):
        return text
    try:
        value, after = read_json(text, 0, end)
    except MalformedCallError as error:
        if not allowed:
            return text
        raise MalformedCallError(f"the argument {key} is not {' or '.join(map(str, allowed))}: {error}", end) from None
    if text[after:].strip():
        if not allowed:
            return text
        raise MalformedCallError(f"the argument {key} is not {' or '.join(map(str, allowed))}: {text[:60]!r}", end)
    return value
