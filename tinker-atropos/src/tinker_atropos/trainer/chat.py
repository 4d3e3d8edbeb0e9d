"""Chat messages in OpenAI's form, as the chat templates of Hugging Face tokenizers want them. Pure."""

from collections.abc import Sequence
from typing import Any

import orjson

Message = dict[str, Any]


class ChatError(ValueError):
    """Messages that cannot be rendered; the message names the field."""


def template_messages(messages: Sequence[Message]) -> list[Message]:
    """Text contents as one string, and the arguments of tool calls as objects: a template would print JSON twice.

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
    """A message that only calls tools has no content; contents in parts must all be text."""
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


def _arguments(where: str, arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments if arguments is not None else {}
    try:
        return orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError as error:
        raise ChatError(f"{where}.function.arguments is not JSON: {error}") from None
