"""An endpoint in front of the policy that programs know: OpenAI's completions and chat, and Anthropic's messages.

All of it is one chat: Anthropic's requests are translated to OpenAI's.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_atropos.arrays import Ints
from tinker_atropos.chat.anthropic_answers import error_answer, message_answer
from tinker_atropos.chat.anthropic_requests import AnthropicRequestError, chat_request
from tinker_atropos.chat.chat_answering import Caller, answer_chat, sampled
from tinker_atropos.chat.chat_rendering import ChatRenderer
from tinker_atropos.chat.event_streams import chat_events, completion_events, messages_events
from tinker_atropos.chat.openai_answers import completion_answer, ping_answer
from tinker_atropos.chat.openai_requests import ChatRequest, CompletionRequest, OpenAIRequest
from tinker_atropos.chat.request_handling import (
    Handler,
    RefusedAnswer,
    RefusedRequestError,
    Told,
    guarded,
    limited_body,
    openai_error,
    parse,
    unless_gone,
    validated,
)
from tinker_atropos.chat.sampling import GeneratedSamples, SampleSource
from tinker_atropos.serving import json_response

Json = dict[str, Any]
Dialects = list[tuple[str, Callable[[Request, Told], Awaitable[Response]], Callable[[RefusedAnswer], Json]]]
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
    whose: Callable[[Request], Caller]

    def routes(self, told: Told) -> list[Route]:
        dialects: Dialects = [
            ("/v1/chat/completions", self._chat, openai_error),
            ("/v1/completions", self._completions, openai_error),
            ("/v1/messages", self._messages, _anthropic_error),
            ("/v1/messages/count_tokens", self._count_tokens, _anthropic_error),
        ]
        posts = {path: guarded(_told(handler, told), told, shape) for path, handler, shape in dialects}
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
        body = validated(ChatRequest, _translated(given))
        answer = message_answer(await self._answer(request, caller, body), given.get("stop_sequences") or ())
        events = (lambda message, _usage: messages_events(message)) if body.stream else None
        return _sent(answer, events, body, told)

    async def _count_tokens(self, request: Request, _told: Told) -> Response:
        caller, given = self.whose(request), _object(await limited_body(request))
        body = validated(ChatRequest, _translated({"max_tokens": 1, **given}))
        return json_response({"input_tokens": len(caller.chat_prompt(body, ""))})

    async def _answer(self, request: Request, caller: Caller, body: ChatRequest) -> Json:
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
    (`tinker.max_context_overflows`).
    """
    card = {"id": model, "object": "model", "created": 0, "owned_by": "tinker", "context_length": context_length}
    return {"object": "list", "data": [card]}


def _told(handler: Callable[[Request, Told], Awaitable[Response]], told: Told) -> Handler:
    async def handle(request: Request) -> Response:
        return await handler(request, told)

    return handle


def _pong(caller: Caller, body: CompletionRequest | ChatRequest) -> Response:
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


def _translated(given: Json) -> Json:
    try:
        return chat_request(given)
    except AnthropicRequestError as error:
        raise RefusedRequestError(str(error), field=error.field) from None


def _anthropic_error(refusal: RefusedAnswer) -> Json:
    return error_answer(refusal.status, refusal.message)
