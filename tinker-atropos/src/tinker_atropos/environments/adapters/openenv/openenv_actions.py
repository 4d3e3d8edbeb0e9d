"""From an answer of the policy to an action of the environment.

An answer is JSON, alone or in a fenced block. What a model thinks before `</think>` is not part of it. An action's JSON
Schema is as pydantic writes it: it says what a prompt says about the fields, and makes values of plain text.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from tinker_atropos.environments.adapters.openenv.openenv_client import Action, RefusedActionError

Schema = Mapping[str, Any]

OWN_FIELDS: Final = frozenset({"metadata"})
"""Fields of OpenEnv's base class `Action`: nothing that a policy decides."""

MAX_REFERENCES: Final = 6
"""References followed one after the other: a schema may refer to itself."""

MAX_LISTED: Final = 12
"""Fields or values named in a sentence."""

INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
BOOLEANS: Final = {"true": True, "yes": True, "false": False, "no": False}


def own_schema(schema: Schema) -> dict[str, object]:
    """The schema of an action without OpenEnv's own fields."""
    own = dict(schema)
    if isinstance(fields := schema.get("properties"), dict):
        own["properties"] = {name: field for name, field in fields.items() if name not in OWN_FIELDS}
    return own


def schema_text(schema: Schema) -> str:
    """Its JSON, without pydantic's titles, which repeat the names."""
    return to_json(_untitled(schema)).decode()


def _untitled(value: object) -> object:
    """A property may be called `title`: that is not a string."""
    if isinstance(value, Mapping):
        return {
            name: _untitled(inner) for name, inner in value.items() if not (name == "title" and isinstance(inner, str))
        }
    return [_untitled(inner) for inner in value] if isinstance(value, list) else value


class FieldSchemas:
    """The fields of an action."""

    def __init__(self, schema: Schema) -> None:
        found = schema.get("properties")
        self.schemas: dict[str, object] = dict(found) if isinstance(found, dict) else {}
        self._definitions = schema.get("$defs")
        listed = schema.get("required")
        names = listed if isinstance(listed, list) else []
        self.required = [name for name in names if isinstance(name, str) and name in self.schemas]
        self.closed = schema.get("additionalProperties") is False

    @property
    def only_required(self) -> str | None:
        """The field that an action consists of, if it is one."""
        return self.required[0] if len(self.required) == 1 else None

    def value_of(self, field: str, text: str) -> object:
        """A plain text as the field's value. Raises ValueError if it is none."""
        for variant in self._variants(self.schemas[field], MAX_REFERENCES):
            try:
                return _value(text, variant)
            except ValueError:
                continue
        raise ValueError(f"{text[:60]!r} is not the value of {field}")

    def in_words(self) -> str:
        """`number (integer), note (string, optional)`."""
        named = [name for name in self.schemas if name not in OWN_FIELDS]
        words = [self._field_in_words(name) for name in named[:MAX_LISTED]]
        return ", ".join([*words, f"and {len(named) - MAX_LISTED} more"] if len(named) > MAX_LISTED else words)

    def _field_in_words(self, name: str) -> str:
        kinds = dict.fromkeys(_in_words(each) for each in self._variants(self.schemas[name], MAX_REFERENCES))
        optional = [] if name in self.required else ["optional"]
        return f"{name} ({', '.join([' or '.join(kinds) or 'any', *optional])})"

    def _variants(self, schema: object, references: int) -> Iterator[Schema]:
        """The alternatives that a schema consists of, with references replaced by what they refer to."""
        if not isinstance(schema, Mapping) or references == 0:
            return
        if isinstance(reference := schema.get("$ref"), str):
            known = self._definitions if isinstance(self._definitions, Mapping) else {}
            yield from self._variants(known.get(reference.rpartition("/")[2]), references - 1)
            return
        alternatives = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if not isinstance(alternatives, list):
            yield schema
            return
        for each in alternatives[:MAX_LISTED]:
            yield from self._variants(each, references - 1)


def _in_words(schema: Schema) -> str:
    values = _allowed(schema)
    if values is None:
        return str(schema.get("type", "any"))
    shown = [to_json(value).decode() for value in values[:MAX_LISTED]]
    return "one of " + ", ".join([*shown, "…"] if len(values) > MAX_LISTED else shown)


def _allowed(schema: Schema) -> list[object] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _value(text: str, schema: Schema) -> object:
    if (allowed := _allowed(schema)) is not None:
        return _one_of(allowed, text)
    match schema.get("type"):
        case "integer" if INTEGER.fullmatch(text):
            return int(text)
        case "number" if math.isfinite(float(text)):
            return float(text)
        case "boolean" if text.lower() in BOOLEANS:
            return BOOLEANS[text.lower()]
        case "string":
            return _unquoted(text)
        case "array" if isinstance(value := from_json(text), list):
            return value
        case None:
            return text
    raise ValueError(text)


def _one_of(allowed: list[object], text: str) -> object:
    for value in allowed:
        if text in (value, str(value)) or _unquoted(text) == value:
            return value
    raise ValueError(text)


def _unquoted(text: str) -> str:
    """A JSON string's text; any other text is itself."""
    if not text.startswith('"'):
        return text
    try:
        value = from_json(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


TOOL_CALL_TITLE: Final = "CallToolAction"
"""The title of the action's schema in environments whose actions are calls of MCP tools (`mcp_types.py`)."""

THOUGHT: Final = "</think>"
FENCED: Final = re.compile(r"```(.*?)```", re.DOTALL)
INFO: Final = re.compile(r"[\w+-]*[ \t]*\r?\n|json\b")
"""What follows the opening fence: the block's language."""


class JsonActions:
    """The action's fields, as one JSON object. `allowed` is a sentence: what an answer must be."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._fields = FieldSchemas(schema)
        fields = self._fields.in_words()
        self.allowed = f"An action is a JSON object with {fields}." if fields else "The only action is {}."

    def instructions(self) -> str:
        """For the policy, in its system prompt."""
        only = self._fields.only_required
        plain = f"\nA plain answer is taken for the value of {only}." if only else ""
        return (
            "You act in an environment. Each of your answers is one action: a JSON object that fits this JSON Schema, "
            f"alone or in a fenced block.\n{schema_text(own_schema(self._schema))}{plain}"
        )

    def parse(self, answer: str) -> Action:
        """Raises RefusedActionError, which says what is wrong."""
        action = json_object(answer)
        if action is None:
            return self._of_plain(plain_text(answer))
        if missing := [name for name in self._fields.required if name not in action]:
            raise RefusedActionError(f"{', '.join(missing[:MAX_LISTED])} is missing.")
        if self._fields.closed and (unknown := [name for name in action if name not in self._fields.schemas]):
            raise RefusedActionError(f"{', '.join(unknown[:MAX_LISTED])} is not a field of the action.")
        return action

    def _of_plain(self, text: str) -> Action:
        only = self._fields.only_required
        if not text:
            raise RefusedActionError("The answer is empty.")
        if only is None:
            raise RefusedActionError("The answer is not a JSON object.")
        try:
            return {only: self._fields.value_of(only, text)}
        except ValueError:
            raise RefusedActionError(f"The answer is neither a JSON object nor a value of {only}.") from None


class ServerTool(BaseModel, frozen=True):
    """A tool of an environment, as it lists them."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}


class ToolCalls:
    """The call of a tool: {"tool_name": …, "arguments": {…}}. Its methods are those of `JsonActions`."""

    def __init__(self, tools: Sequence[ServerTool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        named = [*self._tools][:MAX_LISTED]
        more = [f"{len(tools) - MAX_LISTED} more"] if len(tools) > MAX_LISTED else []
        self.allowed = (
            'A call is a JSON object {"tool_name": "…", "arguments": {…}}; the tools are '
            f"{', '.join([*named, *more]) or 'none'}."
        )

    def instructions(self) -> str:
        listed = "\n".join(
            f"- {tool.name}: {tool.description.strip()}\n  arguments: {schema_text(tool.input_schema)}"
            for tool in self._tools.values()
        )
        return (
            "You act in an environment by calling its tools. Each of your answers is one call: a JSON object "
            '{"tool_name": "…", "arguments": {…}}, alone or in a fenced block. These are the tools, with the JSON '
            f"Schemas of their arguments.\n{listed}"
        )

    def parse(self, answer: str) -> Action:
        call = json_object(answer)
        if call is None:
            raise RefusedActionError("The answer is not a JSON object.")
        name, arguments = call.get("tool_name"), call.get("arguments", {})
        if not isinstance(name, str) or name not in self._tools:
            raise RefusedActionError(f"tool_name is {str(name)[:60]!r}, which is not a tool.")
        if not isinstance(arguments, dict):
            raise RefusedActionError("arguments is not a JSON object.")
        if unknown := [key for key in call if key not in ("type", "tool_name", "arguments")]:
            raise RefusedActionError(f"{', '.join(unknown[:MAX_LISTED])} is not a field of a call.")
        return {"type": "call_tool", "tool_name": name, "arguments": arguments}


def takes_tool_calls(schema: Mapping[str, object]) -> bool:
    return schema.get("title") == TOOL_CALL_TITLE


def json_object(answer: str) -> dict[str, object] | None:
    """The answer as a JSON object: of several fenced blocks the last one that is an object. None: it is none."""
    text = answer.rpartition(THOUGHT)[2]
    for candidate in (*reversed(list(_blocks(text))), text):
        try:
            value = from_json(candidate.strip(), allow_inf_nan=False)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None


def plain_text(answer: str) -> str:
    """The answer, or the content of the one fenced block that it has."""
    text = answer.rpartition(THOUGHT)[2]
    blocks = list(_blocks(text))
    return (blocks[0] if len(blocks) == 1 else text).strip()


def _blocks(text: str) -> Iterator[str]:
    for block in FENCED.findall(text):
        info = INFO.match(block)
        yield block[info.end() :] if info else block
