"""From an answer of the policy to an action of the environment.

An answer is JSON, alone or in a fenced block. What a model thinks before `</think>` is not part of it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from pydantic import BaseModel
from pydantic_core import from_json

from tinker_atropos.environments.adapters.openenv.openenv_frames import Action, RefusedActionError
from tinker_atropos.environments.adapters.openenv.openenv_schema import (
    MAX_LISTED,
    FieldSchemas,
    Schema,
    own_schema,
    schema_text,
)

TOOL_CALL_TITLE: Final = "CallToolAction"
"""The title of the action's schema in environments whose actions are calls of MCP tools (`mcp_types.py`)."""

THOUGHT: Final = "</think>"
FENCED: Final = re.compile(r"```(.*?)```", re.DOTALL)
INFO: Final = re.compile(r"[\w+-]*[ \t]*\r?\n|json\b")
"""What follows the opening fence: the block's language."""


class ActionFormat(Protocol):
    """How a policy writes actions."""

    allowed: str
    """What an answer must be, in a sentence."""

    def instructions(self) -> str:
        """For the policy, in its system prompt."""

    def parse(self, answer: str) -> Action:
        """Raises RefusedActionError, which says what is allowed."""


class JsonActions:
    """The action's fields, as one JSON object."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._fields = FieldSchemas(schema)
        fields = self._fields.in_words()
        self.allowed = f"An action is a JSON object with {fields}." if fields else "The only action is {}."

    def instructions(self) -> str:
        only = self._fields.only_required
        plain = f"\nA plain answer is taken for the value of {only}." if only else ""
        return (
            "You act in an environment. Each of your answers is one action: a JSON object that fits this JSON Schema, "
            f"alone or in a fenced block.\n{schema_text(own_schema(self._schema))}{plain}"
        )

    def parse(self, answer: str) -> Action:
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
    """The call of a tool: {"tool_name": …, "arguments": {…}}."""

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


def takes_tool_calls(schema: Mapping[str, Any]) -> bool:
    return schema.get("title") == TOOL_CALL_TITLE


def json_object(answer: str) -> dict[str, Any] | None:
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
