"""Finished answers as server-sent events.

Nothing is generated incrementally: a stream is the answer in the pieces that clients put together again. What has no
place in the protocol (`prompt_token_ids`, `token_ids`, `tool_call_errors`) is sent once, where vLLM sends it.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import orjson

Json = dict[str, Any]

DONE: Final = b"data: [DONE]\n\n"
CHUNK_FIELDS: Final = frozenset({"id", "object", "created", "model", "choices", "usage"})
MESSAGE_FIELDS: Final = frozenset({"role", "content", "tool_calls"})
OF_THE_TOKENS: Final = frozenset({"logprobs", "token_ids"})
"""Fields of a choice that belong to its tokens: a client adds them up, so one chunk has them, that of the content."""


def chat_events(answer: Json, include_usage: bool) -> Iterator[bytes]:
    """The chunks of a `chat.completion`, choice after choice."""
    pieces = (piece for choice in answer["choices"] for piece in _chat_pieces(choice))
    return _openai_events(answer, "chat.completion.chunk", pieces, include_usage)


def completion_events(answer: Json, include_usage: bool) -> Iterator[bytes]:
    """The chunks of a `text_completion`: one for each choice, whose fields are those of the whole answer's."""
    return _openai_events(answer, "text_completion", answer["choices"], include_usage)


def _openai_events(answer: Json, kind: str, pieces: Iterable[Json], include_usage: bool) -> Iterator[bytes]:
    """`pieces`: each chunk's only choice. The first chunk has the additions of the whole answer."""
    shared = {"id": answer["id"], "object": kind, "created": answer["created"], "model": answer["model"]}
    if include_usage:
        shared["usage"] = None
    additions = _without(answer, CHUNK_FIELDS)
    for piece in pieces:
        yield _data({**shared, **additions, "choices": [piece]})
        additions = {}
    if include_usage:
        yield _data({**shared, "choices": [], "usage": answer["usage"]})
    yield DONE


def _chat_pieces(choice: Json) -> Iterator[Json]:
    """The role, the content and what belongs to its tokens, each tool call, and the end."""
    message = choice["message"]
    content = message.get("content")
    yield _piece(choice, {"role": message["role"], "content": None if content is None else ""})
    tokens = {name: value for name, value in choice.items() if name in OF_THE_TOKENS}
    yield _piece(choice, {"content": content, **_without(message, MESSAGE_FIELDS)}) | tokens
    for index, call in enumerate(message.get("tool_calls") or ()):
        yield _piece(choice, {"tool_calls": [{"index": index, **call}]})
    yield _piece(choice, {}) | _without(choice, OF_THE_TOKENS | {"message"})


def _piece(choice: Json, delta: Json) -> Json:
    return {"index": choice["index"], "delta": delta, "logprobs": None, "finish_reason": None}


def messages_events(answer: Json) -> Iterator[bytes]:
    """The events of an Anthropic message."""
    start: Json = {
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**answer["usage"], "output_tokens": 0},
    }
    yield _event({"type": "message_start", "message": {**answer, **start}})
    for index, block in enumerate(answer["content"]):
        opened, delta = _block_pieces(block)
        yield _event({"type": "content_block_start", "index": index, "content_block": opened})
        yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    end = {"stop_reason": answer["stop_reason"], "stop_sequence": answer["stop_sequence"]}
    yield _event({"type": "message_delta", "delta": end, "usage": answer["usage"]})
    yield _event({"type": "message_stop"})


def _block_pieces(block: Json) -> tuple[Json, Json]:
    """A text or tool_use block as it begins, and all the rest of it."""
    if block["type"] == "tool_use":
        arguments = orjson.dumps(block["input"]).decode()
        return {**block, "input": {}}, {"type": "input_json_delta", "partial_json": arguments}
    return {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}


def _without(value: Json, names: frozenset[str]) -> Json:
    return {name: each for name, each in value.items() if name not in names}


def _data(value: Json) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def _event(value: Json) -> bytes:
    return f"event: {value['type']}\n".encode() + _data(value)
