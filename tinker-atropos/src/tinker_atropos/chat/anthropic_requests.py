"""Requests to Anthropic's `/v1/messages`, as OpenAI's chat requests.

Only what Anthropic's form has of its own is validated here. A field without an equivalent is passed on under its own
name, and the chat request decides: so `temperature` is validated once, and `thinking` (how much the policy thinks is
what is trained) or `context_management` (the whole history is the prompt) get the warning of any unknown field.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import orjson

from tinker_atropos.chat.request_handling import RefusedRequestError

Json = dict[str, Any]
Block = tuple[str, Json]
"""A content block, and the path that names it in errors."""

TRANSLATED: Final = frozenset(
    {"messages", "output_config", "output_format", "stop_sequences", "system", "tool_choice", "tools"}
)
DROPPED: Final = frozenset({"betas", "cache_control", "diagnostics", "inference_geo", "service_tier", "speed"})
"""Fields about caching, billing and speed: what is sampled is the same without them."""
REFUSED: Final[Mapping[str, str]] = {
    "container": "this server runs no code",
    "mcp_servers": "this server calls no tools: connect to MCP servers in your program, and send their tools",
    "thread": "this server keeps no conversations: send all messages",
}
"""Fields that ask for what is not done here; an empty value asks for nothing."""

BLOCK_FIELDS: Final[Mapping[str, str]] = {
    "text": "text (a string)",
    "thinking": "thinking (a string)",
    "redacted_thinking": "data (a string)",
    "tool_use": "id and name (strings) and input (an object)",
    "tool_result": "tool_use_id (a string) and content (a string or text blocks)",
}
TOOL_CHOICES: Final[Mapping[str, str]] = {"auto": "auto", "any": "required", "none": "none"}


def chat_request(body: Json) -> Json:
    """A null is equivalent to a missing field. Raises RefusedRequestError, which names the field."""
    given = {name: value for name, value in body.items() if value is not None}
    _check_whole(given)
    return {
        **{name: value for name, value in given.items() if name not in TRANSLATED | DROPPED | REFUSED.keys()},
        "messages": [*_system_messages(given), *_chat_messages(given.get("messages"))],
        **_tools(given),
        **_tool_choice(given),
        **_stop(given),
        **_output(given),
    }


def _check_whole(given: Json) -> None:
    for name, why in REFUSED.items():
        if given.get(name):
            raise _refusal(name, f"is not supported, {why}")
    if given.get("n", 1) != 1:
        raise _refusal("n", f"is {_shown(given['n'])}; a message has one choice: leave it out, or send 1")
    if "max_tokens" not in given:
        raise _refusal("max_tokens", "is missing; Anthropic's requests have it: send the most tokens to sample")


def _system_messages(given: Json) -> list[Json]:
    content = _text_content(_blocks("system", given.get("system", [])))
    return [{"role": "system", "content": content}] if content else []


def _chat_messages(value: object) -> list[Json]:
    messages = _objects("messages", value)
    if not messages:
        raise _refusal("messages", "is empty; send at least one message")
    where, last = messages[-1]
    if last.get("role") == "assistant":
        raise _refusal(where, "has the role assistant, and answers are not continued: end with a message of the user")
    return [translated for each in messages for translated in _chat_message(*each)]


def _chat_message(where: str, message: Json) -> Iterable[Json]:
    role, blocks = message.get("role"), _blocks(f"{where}.content", message.get("content"))
    if role == "user":
        return _user_messages(blocks)
    if role == "assistant":
        return [_assistant_message(blocks)]
    if role == "system":
        return [{"role": "system", "content": _text_content(blocks)}]
    raise _refusal(f"{where}.role", f"is {_shown(role)}; it must be user, assistant or system")


def _user_messages(blocks: Sequence[Block]) -> Iterator[Json]:
    """Results of tools are messages of their own in OpenAI's form; the order is kept."""
    if not blocks:
        yield {"role": "user", "content": ""}
    for are_results, run in groupby(blocks, lambda block: block[1].get("type") == "tool_result"):
        if are_results:
            yield from (_tool_message(*block) for block in run)
        else:
            yield {"role": "user", "content": _text_content(list(run), "text", "tool_result")}


def _tool_message(where: str, block: Json) -> Json:
    """OpenAI's form has no field for a failed call, so that its text says so."""
    if not isinstance(block.get("tool_use_id"), str):
        raise _block_refusal(where, block, "tool_result")
    given = block.get("content")
    texts = [_text(*each) for each in _blocks(f"{where}.content", "" if given is None else given)]
    if block.get("is_error") is True and not "".join(texts).startswith("Error"):
        texts = ["Error: " + "".join(texts)]
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _as_content(texts)}


def _assistant_message(blocks: Sequence[Block]) -> Json:
    calls = [_tool_call(*block) for block in blocks if block[1].get("type") == "tool_use"]
    text = "".join(_spoken(*block) for block in blocks if block[1].get("type") != "tool_use")
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def _spoken(where: str, block: Json) -> str:
    """What an assistant's block adds to its text. Redacted thinking is encrypted: nobody here can read it."""
    match block:
        case {"type": "thinking", "thinking": str(text)}:
            return f"<think>{text}</think>\n" if text else ""
        case {"type": "redacted_thinking"}:
            return ""
    return _text(where, block, "text", "thinking", "redacted_thinking", "tool_use")


def _tool_call(where: str, block: Json) -> Json:
    match block:
        case {"id": str(call_id), "name": str(name), "input": dict(arguments)}:
            return {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": _dumped(where, arguments)},
            }
    raise _block_refusal(where, block, "tool_use")


def _dumped(where: str, arguments: Json) -> str:
    try:
        return orjson.dumps(arguments).decode()
    except orjson.JSONEncodeError as error:  # it is nested too deep, or has a number that is too large
        raise _refusal(f"{where}.input", f"cannot be written as JSON: {error}") from None


def _tools(given: Json) -> Json:
    return {"tools": [_tool(*each) for each in _objects("tools", given["tools"])]} if "tools" in given else {}


def _tool(where: str, tool: Json) -> Json:
    kind = tool.get("type")
    if kind is not None and kind != "custom":
        raise _refusal(
            f"{where}.type", f"is {_shown(kind)}, a tool of Anthropic's own: send tools with a name and an input_schema"
        )
    match tool:
        case {"name": str(name), "input_schema": dict(schema)}:
            optional = {each: tool[each] for each in ("description", "strict") if tool.get(each) is not None}
            return {"type": "function", "function": {"name": name, **optional, "parameters": schema}}
    raise _refusal(where, "is not a tool; it must have a name (a string) and an input_schema (an object)")


def _tool_choice(given: Json) -> Json:
    choice = given.get("tool_choice")
    match choice:
        case None:
            return {}
        case {"type": "tool", "name": str(name)}:
            translated: object = {"type": "function", "function": {"name": name}}
        case {"type": "auto" | "any" | "none" as kind}:
            translated = TOOL_CHOICES[kind]
        case _:
            raise _refusal(
                "tool_choice", 'must be an object with the type "auto", "any" or "none", or "tool" with a name'
            )
    single = choice.get("disable_parallel_tool_use") is True
    return {"tool_choice": translated, **({"parallel_tool_calls": False} if single else {})}


def _stop(given: Json) -> Json:
    if "stop_sequences" not in given:
        return {}
    stops = given["stop_sequences"]
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise _refusal("stop_sequences", "must be a list of strings")
    return {"stop": stops}


def _output(given: Json) -> Json:
    """A schema of the output is OpenAI's `response_format`; what else `output_config` has is passed on."""
    config = given.get("output_config", {})
    if not isinstance(config, dict):
        raise _refusal("output_config", f"is {_shown(config)}; it must be an object")
    rest = {name: value for name, value in config.items() if name != "format" and value is not None}
    passed: Json = {"output_config": rest} if rest else {}
    for where, asked in (("output_config.format", config.get("format")), ("output_format", given.get("output_format"))):
        match asked:
            case None:
                continue
            case {"type": "json_schema", "schema": dict(schema)}:
                named = {"name": "output", "schema": schema}
                passed["response_format"] = {"type": "json_schema", "json_schema": named}
            case _:
                raise _refusal(where, 'must be an object with the type "json_schema" and a schema (an object)')
    return passed


def _objects(where: str, value: object) -> list[Block]:
    if not isinstance(value, list):
        raise _refusal(where, f"is {_shown(value)}; it must be a list of objects")
    for index, each in enumerate(value):
        if not isinstance(each, dict):
            raise _refusal(f"{where}.{index}", f"is {_shown(each)}; it must be an object")
    return [(f"{where}.{index}", each) for index, each in enumerate(value)]


def _blocks(where: str, content: object) -> list[Block]:
    if isinstance(content, str):
        return [(where, {"type": "text", "text": content})]
    if not isinstance(content, list):
        raise _refusal(where, f"is {_shown(content)}; it must be a string or a list of content blocks")
    return _objects(where, content)


def _text_content(blocks: Sequence[Block], *allowed: str) -> str | list[Json]:
    return _as_content([_text(*block, *allowed) for block in blocks])


def _as_content(texts: Sequence[str]) -> str | list[Json]:
    """Several texts remain parts: how parts become one text is decided where chats are rendered."""
    return "".join(texts) if len(texts) < 2 else [{"type": "text", "text": text} for text in texts]


def _text(where: str, block: Json, *allowed: str) -> str:
    """`allowed`: the types that a block may have in this place; text alone, if none are named."""
    match block:
        case {"type": "text", "text": str(text)}:
            return text
    raise _block_refusal(where, block, *(allowed or ("text",)))


def _block_refusal(where: str, block: Json, *allowed: str) -> RefusedRequestError:
    kind = block.get("type")
    if isinstance(kind, str) and kind in allowed:
        return _refusal(where, f"is not a complete block of type {kind}; it must have {BLOCK_FIELDS[kind]}")
    return _refusal(where, f"has the type {_shown(kind)}; allowed here: {', '.join(allowed)}")


def _refusal(field: str, sentence: str) -> RefusedRequestError:
    return RefusedRequestError(f"{field} {sentence}", field=field)


def _shown(value: object) -> str:
    if value is None:
        return "missing"
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


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


def error_answer(refusal: RefusedRequestError) -> Json:
    other = "api_error" if refusal.status >= 500 else "invalid_request_error"
    return {"type": "error", "error": {"type": ERROR_TYPES.get(refusal.status, other), "message": str(refusal)}}
