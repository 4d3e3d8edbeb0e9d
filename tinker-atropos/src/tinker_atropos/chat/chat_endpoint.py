"""An endpoint in front of the policy that programs know: OpenAI's completions and chat, and Anthropic's messages.

All of it is one chat: Anthropic's requests are translated to OpenAI's. Nothing is generated incrementally: a stream is
the answer in the pieces that clients put together again. What has no place in the protocol (`prompt_token_ids`,
`token_ids`, `tool_call_errors`) is sent once, where vLLM sends it.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_atropos.chat.anthropic_requests import chat_request, error_answer, message_answer
from tinker_atropos.chat.chat_rendering import ChatRenderer
from tinker_atropos.chat.openai_answers import ChatCaller, answer_chat, completion_answer, ping_answer, sampled
from tinker_atropos.chat.openai_requests import ChatRequest, CompletionRequest, OpenAIRequest
from tinker_atropos.chat.request_handling import (
    RefusedRequestError,
    Told,
    guarded,
    limited_body,
    openai_error,
    parse,
    unless_gone,
    validated,
)
from tinker_atropos.chat.sampling import GeneratedSamples, Ints, SampleSource
from tinker_atropos.serving import json_response

Json = dict[str, Any]
Dialects = list[tuple[str, Callable[..., Awaitable[Response]], Callable[[RefusedRequestError], Json]]]
"""A path, its handler, and the shape of its errors."""

IGNORED_HEADER = "x-rl-ignored-fields"
"""Names the fields of a request that had no effect."""


@dataclass(frozen=True, slots=True)
class AnyCaller:
    """Requests that have nothing to do with each other."""

    source: SampleSource
    renderer: ChatRenderer

    def chat_prompt(self, body: ChatRequest, opening: str) -> Ints:
        text = self.renderer.text(body.messages, body.shown_tools, body.chat_template_kwargs)
        return self.renderer.tokenizer.encode(text + opening, add_special_tokens=False)

    def was_answered(self, prompt_T: Ints, generation: GeneratedSamples, messages: Sequence[Json]) -> None:
        """Nothing follows from it."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`model` is the name of the only model; `default_max_tokens` bounds a chat answer whose request names no limit.

    `whose` finds the caller; it raises RefusedRequestError for one that has no right to ask.
    """

    model: str
    renderer: ChatRenderer
    default_max_tokens: int
    whose: Callable[[Request], ChatCaller]

    def routes(self, told: Told) -> list[Route]:
        dialects: Dialects = [
            ("/v1/chat/completions", self._chat, openai_error),
            ("/v1/completions", self._completions, openai_error),
            ("/v1/messages", self._messages, error_answer),
            ("/v1/messages/count_tokens", self._count_tokens, error_answer),
        ]
        posts = {path: guarded(partial(handler, told=told), told, shape) for path, handler, shape in dialects}
        return [
            Route("/v1/models", guarded(self._models, told)),
            *(Route(path, handler, methods=["POST"]) for path, handler in posts.items()),
        ]

    async def _models(self, request: Request) -> Response:
        return json_response(models_answer(self.model, self.whose(request).source.context_length))

    async def _completions(self, request: Request, told: Told) -> Response:
        caller, body = self.whose(request), await parse(request, CompletionRequest)
        if body.is_ping:
            return _pong(caller, body)
        prompt_T = encoded(self.renderer, body.prompt)
        generation = await unless_gone(request, sampled(caller, body, prompt_T, body.max_tokens, self.renderer))
        caller.was_answered(prompt_T, generation, [])
        answer = completion_answer(body, generation, prompt_T, self.renderer.tokenizer)
        return _sent(answer, completion_events if body.stream else None, body, told)

    async def _chat(self, request: Request, told: Told) -> Response:
        caller, body = self.whose(request), await parse(request, ChatRequest)
        if body.is_ping:
            return _pong(caller, body)
        answer = await self._answer(request, caller, body)
        return _sent(answer, chat_events if body.stream else None, body, told)

    async def _messages(self, request: Request, told: Told) -> Response:
        caller, given = self.whose(request), _object(await limited_body(request))
        body = validated(ChatRequest, chat_request(given))
        answer = message_answer(await self._answer(request, caller, body), given.get("stop_sequences") or ())
        events = (lambda message, _usage: messages_events(message)) if body.stream else None
        return _sent(answer, events, body, told)

    async def _count_tokens(self, request: Request, told: Told) -> Response:  # noqa: ARG002 -- every handler gets it
        caller, given = self.whose(request), _object(await limited_body(request))
        body = validated(ChatRequest, chat_request({"max_tokens": 1, **given}))
        return json_response({"input_tokens": len(caller.chat_prompt(body, ""))})

    async def _answer(self, request: Request, caller: ChatCaller, body: ChatRequest) -> Json:
        work = answer_chat(caller, body, self.renderer, self.default_max_tokens)
        return await unless_gone(request, work)


def encoded(renderer: ChatRenderer, prompt: str | list[int] | None) -> Ints:
    if isinstance(prompt, list):
        return np.array(prompt, np.int64)
    return renderer.tokenizer.encode(prompt or "")


def models_answer(model: str, context_length: int | None) -> Json:
    """The one model of the run; `context_length` in tokens, null if it is unknown.

    Clients that shorten a conversation by themselves read it. It is not named `max_model_len`: by that name `renderers`
    rejects too long prompts before they are sent, and a run that loses all of its groups to them would not be ended
    (`trainer.max_context_overflows`).
    """
    card = {"id": model, "object": "model", "created": 0, "owned_by": "tinker", "context_length": context_length}
    return {"object": "list", "data": [card]}


def _pong(caller: ChatCaller, body: CompletionRequest | ChatRequest) -> Response:
    reason = caller.source.unavailable()
    if reason:
        raise RefusedRequestError(reason, status=503)
    return json_response(ping_answer(body))


def _sent(
    answer: Json, events: Callable[[Json, bool], Iterable[bytes]] | None, body: OpenAIRequest, told: Told
) -> Response:
    """As JSON, or as events. Fields without an effect are named in a header, and in the log once."""
    headers = {IGNORED_HEADER: ", ".join(body.ignored)} if body.ignored else None
    for name in body.ignored:
        told.tell(f"requests have the field {name!r}, which has no effect here")
    if events is None:
        return Response(orjson.dumps(answer), headers=headers, media_type="application/json")
    content = b"".join(events(answer, body.stream_options.include_usage))
    return Response(content, headers=headers, media_type="text/event-stream")


def _object(body: bytes) -> Json:
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RefusedRequestError(f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise RefusedRequestError("the body must be an object")
    return given


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
