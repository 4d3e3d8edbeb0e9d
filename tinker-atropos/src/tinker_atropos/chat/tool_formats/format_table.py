"""The formats by their names, which are vLLM's, and which family of models writes which.

There are two ways in which models write a call: a JSON text between marks, and arguments between tags of their own.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from tinker_atropos.chat.tool_formats.tool_format import MalformedCallError, ToolCall, ToolFormat, Tools, checked_call


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)
_SPACE = re.compile(r"\s*")


def read_json(text: str, start: int, end: int) -> tuple[object, int]:
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


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _schemas(name: str, tools: Tools) -> Mapping[str, object]:
    """The schemas of the arguments of a function."""
    for tool in tools:
        if tool["function"]["name"] == name:
            properties = (tool["function"].get("parameters") or {}).get("properties")
            return properties if isinstance(properties, dict) else {}
    return {}


def _value(key: str, text: str, schemas: Mapping[str, object], end: int) -> object:
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


def _tagged_json(begin: str, end: str) -> JsonCalls:
    """An object with name and arguments between two tags."""
    return JsonCalls(
        head=re.compile(rf"{re.escape(begin)}\s*"),
        tail=re.compile(rf"\s*{re.escape(end)}"),
        marks=(f"{begin}\n", "", f"\n{end}"),
        begins=re.compile(re.escape(begin)),
        ends=end,
    )


HERMES: Final = _tagged_json("<tool_call>", "</tool_call>")

MISTRAL: Final = JsonCalls(  # newer tokenizers write name[ARGS]{…}, older ones [{"name": …}, …]
    head=re.compile(r"\[TOOL_CALLS\]\s*(?:(?P<name>[^\[\]{}\s]+)(?:\[CALL_ID\][^\[]*)?(?:\[ARGS\])?)?(?=\s*[\[{])"),
    tail=re.compile(""),
    marks=("[TOOL_CALLS]", "[ARGS]", ""),
    begins=re.compile(r"\[TOOL_CALLS\]"),
)

LLAMA3: Final = JsonCalls(
    head=re.compile(r"(?:<\|python_tag\|>)?\s*"),
    tail=re.compile(r"\s*;?"),
    marks=("", "", ""),
    begins=re.compile(r"""<\|python_tag\|>(?=\s*\{)|(?:\A|(?<=[;\n]))\s*(?=\{\s*"(?:name|type)")"""),
    keys=("parameters", "arguments"),
)

DEEPSEEK_V3: Final = JsonCalls(
    head=re.compile(r"<｜tool▁call▁begin｜>\s*function\s*<｜tool▁sep｜>(?P<name>[^\n<]+)\n```json\s*"),
    tail=re.compile(r"\s*```\s*<｜tool▁call▁end｜>"),
    marks=("<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>"),
    begins=re.compile("<｜tool▁call▁begin｜>"),
    ends="<｜tool▁call▁end｜>",
)

DEEPSEEK_V3_1: Final = JsonCalls(
    head=re.compile(r"<｜tool▁call▁begin｜>(?P<name>[^\n<]+)<｜tool▁sep｜>\s*"),
    tail=re.compile(r"\s*<｜tool▁call▁end｜>"),
    marks=("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    begins=re.compile("<｜tool▁call▁begin｜>"),
    ends="<｜tool▁call▁end｜>",
)

KIMI_K2: Final = JsonCalls(  # functions.NAME:INDEX
    head=re.compile(
        r"<\|tool_call_begin\|>\s*(?:functions\.)?(?P<name>[^:<\s]+)(?::\d+)?\s*<\|tool_call_argument_begin\|>\s*"
    ),
    tail=re.compile(r"\s*<\|tool_call_end\|>"),
    marks=("<|tool_call_begin|>functions.", ":{index}<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    begins=re.compile(r"<\|tool_call_begin\|>"),
    ends="<|tool_call_end|>",
)

QWEN3_CODER: Final = TaggedCalls(
    begins=re.compile(r"<tool_call>\s*<function=|<function="),
    name=re.compile(r"(?:<tool_call>\s*)?<function=(?P<name>[^>\n]*)>"),
    argument=re.compile(r"\s*<parameter=(?P<key>[^>\n]*)>\n?(?P<value>.*?)\n?</parameter>", re.DOTALL),
    end=re.compile(r"\s*</function>(?:\s*</tool_call>)?"),
    marks=("<tool_call>\n<function=", ">\n", "<parameter=", ">\n", "\n</parameter>\n", "</function>\n</tool_call>"),
)


def _glm(line_end: str) -> TaggedCalls:
    return TaggedCalls(
        begins=re.compile("<tool_call>"),
        name=re.compile(r"<tool_call>\s*(?P<name>[^\n<]*)"),
        argument=re.compile(r"\s*<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>", re.DOTALL),
        end=re.compile(r"\s*</tool_call>"),
        marks=(
            *("<tool_call>", line_end, "<arg_key>", f"</arg_key>{line_end}<arg_value>", f"</arg_value>{line_end}"),
            "</tool_call>",
        ),
    )


DEEPSEEK_SECTION: Final = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
KIMI_SECTION: Final = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")

TOOL_FORMATS: Final[Mapping[str, ToolFormat]] = {
    each.name: each
    for each in (
        ToolFormat("hermes", HERMES),
        ToolFormat("qwen", HERMES),
        ToolFormat("qwen3_coder", QWEN3_CODER),
        ToolFormat("mistral", MISTRAL, between=""),
        ToolFormat("llama3_json", LLAMA3, between="; "),
        ToolFormat("deepseek_v3", DEEPSEEK_V3, DEEPSEEK_SECTION),
        ToolFormat("deepseek_v3_1", DEEPSEEK_V3_1, DEEPSEEK_SECTION, between=""),
        ToolFormat("kimi_k2", KIMI_K2, KIMI_SECTION, between=""),
        ToolFormat("longcat", _tagged_json("<longcat_tool_call>", "</longcat_tool_call>")),
        ToolFormat("glm45", _glm("\n")),
        ToolFormat("glm47", _glm(""), between=""),
    )
}

FAMILIES_OF_MODELS: Final[tuple[tuple[str, str], ...]] = (
    (r"qwen3-coder|qwen3\.[5-9]", "qwen3_coder"),
    (r"hermes", "hermes"),
    (r"qwen|qwq", "qwen"),
    (r"llama", "llama3_json"),
    (r"mistral|ministral|magistral|devstral|mixtral|codestral", "mistral"),
    (r"deepseek-v3\.[12]", "deepseek_v3_1"),
    (r"deepseek", "deepseek_v3"),
    (r"kimi", "kimi_k2"),
    (r"longcat", "longcat"),
    (r"glm-?4\.[56]", "glm45"),
    (r"glm", "glm47"),
)
"""The first pattern that is found in a model's name, in lower case, says its format."""

OTHER_MODELS: Final = "hermes"


def tool_format_name(model: str) -> str:
    """The format of a model's family. A distilled model has its base model's name behind: `…-Distill-Qwen-7B`."""
    name = model.lower().rpartition("distill")[2]
    return next((each for pattern, each in FAMILIES_OF_MODELS if re.search(pattern, name)), OTHER_MODELS)
