"""Finished chat answers, and errors, in the shapes of Anthropic's `/v1/messages`."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

Json = dict[str, Any]

STOP_REASONS: Final[Mapping[str, str]] = {"length": "max_tokens", "content_filter": "refusal"}
ERROR_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
KNOWN_IN_ANSWER: Final = frozenset({"id", "object", "created", "model", "choices", "usage"})
KNOWN_IN_CHOICE: Final = frozenset({"index", "message", "finish_reason", "stop_reason"})
KNOWN_IN_MESSAGE: Final = frozenset({"role", "content", "tool_calls"})


def message_answer(answer: Json, stop_sequences: Sequence[str] = ()) -> Json:
    """The first choice of a finished `chat.completion` as a message. Our additions keep their names."""
    choice = answer["choices"][0]
    message, calls = choice["message"], choice["message"].get("tool_calls") or ()
    texts = [{"type": "text", "text": message["content"]}] if message.get("content") else []
    matched = choice.get("stop_reason")
    stop = matched if isinstance(matched, str) and matched in stop_sequences else None
    reason = _stop_reason(choice["finish_reason"], bool(calls), stop)
    return {
        "id": f"msg_{answer['id'].removeprefix('chatcmpl-')}",
        "type": "message",
        "role": "assistant",
        "model": answer["model"],
        "content": [*texts, *map(_tool_use, calls)],
        "stop_reason": reason,
        "stop_sequence": stop if reason == "stop_sequence" else None,
        "usage": {
            "input_tokens": answer["usage"]["prompt_tokens"],
            "output_tokens": answer["usage"]["completion_tokens"],
        },
        **_additions(answer, KNOWN_IN_ANSWER),
        **_additions(choice, KNOWN_IN_CHOICE),
        **_additions(message, KNOWN_IN_MESSAGE),
    }


def _stop_reason(finish_reason: str, calls_tools: bool, stop: str | None) -> str:
    if finish_reason in STOP_REASONS:
        return STOP_REASONS[finish_reason]
    if calls_tools:
        return "tool_use"
    return "end_turn" if stop is None else "stop_sequence"


def _tool_use(call: Json) -> Json:
    function = call["function"]
    return {"type": "tool_use", "id": call["id"], "name": function["name"], "input": _input(function["arguments"])}


def _input(arguments: str) -> Json:
    """The arguments as the object that `input` must be; others are kept under the key that Anthropic suggests."""
    try:
        parsed = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"INVALID_JSON": arguments}


def _additions(value: Json, known: frozenset[str]) -> Json:
    return {name: each for name, each in value.items() if name not in known and each is not None}


def error_answer(status: int, message: str) -> Json:
    kind = ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}
