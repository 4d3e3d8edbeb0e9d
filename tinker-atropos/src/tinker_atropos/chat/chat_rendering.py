"""Chat messages in OpenAI's form -> the prompt of the assistant's next turn.

The tokenizer's chat template renders them: that is what the model was trained on. What a template leaves out (tools,
calls, results of tools) is written into the messages in the model's tool format instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import orjson

from tinker_atropos.chat.sampling import Ints
from tinker_atropos.chat.tokenizer import ChatError, Message, Tokenizer
from tinker_atropos.chat.tool_formats.format_table import TOOL_FORMATS, tool_format_name
from tinker_atropos.chat.tool_formats.tool_format import ToolCall, ToolFormat
from tinker_atropos.errors import ConfigError

NO_KWARGS: Mapping[str, Any] = {}


def template_messages(messages: Sequence[Message]) -> list[Message]:
    """Text contents as one string, and tool call arguments as objects: a template would encode them as JSON twice.

    Raises ChatError naming the message.
    """
    return [_template_message(f"messages.{index}", message) for index, message in enumerate(messages)]


def _template_message(where: str, message: Message) -> Message:
    if not isinstance(message.get("role"), str):
        raise ChatError(f"{where}.role is {message.get('role')!r}; it must be system, user, assistant or tool")
    rendered = {**message, "content": _text(f"{where}.content", message.get("content"))}
    if message.get("tool_calls"):
        rendered["tool_calls"] = [
            _tool_call(f"{where}.tool_calls.{index}", call) for index, call in enumerate(message["tool_calls"])
        ]
    return rendered


def _text(where: str, content: Any) -> str:
    """The text of a message: none if it only calls tools; the parts of a content must all be text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    for index, part in enumerate(parts):
        if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            raise ChatError(f"{where}.{index} is not a text part; only text can be sampled from")
    return "".join(part["text"] for part in parts)


def _tool_call(where: str, call: Any) -> Message:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise ChatError(f"{where}.function is missing; a tool call has a function with a name and arguments")
    return {**call, "function": {**function, "arguments": _arguments(where, function.get("arguments"))}}


def _arguments(where: str, arguments: object) -> object:
    if not isinstance(arguments, str):
        return arguments if arguments is not None else {}
    try:
        return orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError as error:
        raise ChatError(f"{where}.function.arguments is not JSON: {error}") from None


PROBE: Final = "probe_of_the_template"
ASKED: Final[Message] = {"role": "user", "content": "x"}
CALLED: Final[Message] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "call00000", "type": "function", "function": {"name": PROBE, "arguments": {}}}],
}
ANSWERED: Final[Message] = {"role": "tool", "tool_call_id": "call00000", "name": "f", "content": PROBE}
PROBE_TOOL: Final = {
    "type": "function",
    "function": {"name": PROBE, "description": "x", "parameters": {"type": "object", "properties": {}}},
}


@dataclass(frozen=True)
class ChatRenderer:
    """`tool_format`: how the model writes calls; it stands in where the template shows no tools."""

    tokenizer: Tokenizer
    tool_format: ToolFormat

    def text(
        self, messages: Sequence[Message], tools: Sequence[Message] = (), template_kwargs: Mapping[str, Any] = NO_KWARGS
    ) -> str:
        """Raises ChatError if the template cannot render the messages."""
        shown = template_messages(messages)
        if not self._shows_calls:
            shown = [self._with_calls_written(message) for message in shown]
        if not self._shows_results:
            shown = [_as_user(message) if message["role"] == "tool" else message for message in shown]
        if tools and not self._shows_tools:
            shown, tools = _with_system_text(shown, self.tool_format.render_tools(tools)), ()
        return self.tokenizer.render_template(shown, tools, template_kwargs)

    def ids(
        self, messages: Sequence[Message], tools: Sequence[Message] = (), template_kwargs: Mapping[str, Any] = NO_KWARGS
    ) -> Ints:
        return self.tokenizer.encode(self.text(messages, tools, template_kwargs), add_special_tokens=False)

    def written(self, message: Message) -> str:
        """An assistant's message as the model would have written it. Raises ChatError."""
        return str(self._with_calls_written(_template_message("message", message))["content"])

    @cached_property
    def _shows_tools(self) -> bool:
        return self._shown([ASKED], [PROBE_TOOL])

    @cached_property
    def _shows_calls(self) -> bool:
        return self._shown([ASKED, CALLED, {**ANSWERED, "content": "x"}])

    @cached_property
    def _shows_results(self) -> bool:
        return self._shown([ASKED, CALLED if self._shows_calls else {**CALLED, "tool_calls": []}, ANSWERED])

    def _shown(self, messages: Sequence[Message], tools: Sequence[Message] = ()) -> bool:
        try:
            return PROBE in self.tokenizer.render_template(messages, tools, NO_KWARGS)
        except ChatError:
            return False

    def _with_calls_written(self, message: Message) -> Message:
        calls = [_as_call(call) for call in message.get("tool_calls") or []]
        if not calls:
            return message
        others = {name: value for name, value in message.items() if name != "tool_calls"}
        return {
            **others,
            "content": "\n".join(filter(None, (message["content"], self.tool_format.render_calls(calls)))),
        }


def chat_renderer(tokenizer: Tokenizer, model: str, tool_format: str | None = None) -> ChatRenderer:
    """With the tool format of that name, or that of the model's family. Raises ConfigError for an unknown one."""
    if tool_format is not None and tool_format not in TOOL_FORMATS:
        raise ConfigError(f"env.tool_call_parser is {tool_format!r}; it must be one of {', '.join(TOOL_FORMATS)}")
    return ChatRenderer(tokenizer, TOOL_FORMATS[tool_format or tool_format_name(model)])


def _as_call(call: Message) -> ToolCall:
    function = call["function"]
    return ToolCall(str(function.get("name")), orjson.dumps(function["arguments"]).decode())


def _as_user(message: Message) -> Message:
    return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}


def _with_system_text(messages: Sequence[Message], text: str) -> list[Message]:
    if messages and messages[0]["role"] == "system":
        first, *others = messages
        return [{**first, "content": f"{first['content']}\n\n{text}"}, *others]
    return [{"role": "system", "content": text}, *messages]
