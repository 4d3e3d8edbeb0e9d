"""The inference server: what environments sample from. Always the current policy, always written into the ledger."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_atropos.serving import json_response
from tinker_atropos.trainer.generation import Generation, Generator, UnavailableError
from tinker_atropos.trainer.inference_wire import (
    ChatRequest,
    CompletionRequest,
    GenerateRequest,
    chat_answer,
    completion_answer,
    generate_answer,
    ping_answer,
)
from tinker_atropos.trainer.policy import SampleRefusedError
from tinker_atropos.trainer.rollouts import Ints
from tinker_atropos.trainer.tokenizer import Tokenizer

T = TypeVar("T")
Body = TypeVar("Body", bound=BaseModel)

CLIENT_CLOSED_REQUEST = 499
"""nginx's code for a client that went away; nobody reads it."""


class BadRequestError(Exception):
    """The request does not fit the route; the message names the field."""


class InferenceServer:
    """Handlers of the data port. `default_max_tokens` bounds a chat answer whose request names no limit."""

    def __init__(self, generator: Generator, tokenizer: Tokenizer, default_max_tokens: int) -> None:
        self._generator = generator
        self._tokenizer = tokenizer
        self._default_max_tokens = default_max_tokens

    async def health(self, _request: Request) -> Response:
        reason = self._generator.unavailable()
        return json_response({"status": reason or "ok"}, 503 if reason else 200)

    async def generate(self, request: Request) -> Response:
        body = await _parse(request, GenerateRequest)
        prompt_T = self._prompt(body)
        params = body.sampling_params
        settings = params.settings(params.max_new_tokens, self._tokenizer.eos)
        generation = await _unless_gone(request, self._generator.generate(prompt_T, params.n, settings))
        token_texts = self._token_texts(generation) if body.return_text_in_logprobs else None
        return json_response(generate_answer(generation, self._texts(generation), prompt_T, token_texts))

    async def completions(self, request: Request) -> Response:
        body = await _parse(request, CompletionRequest)
        if body.is_ping:
            return self._pong(ping_answer(body))
        prompt_T = self._tokenizer.encode(body.prompt) if isinstance(body.prompt, str) else _ids(body.prompt)
        settings = body.settings(body.max_tokens, self._tokenizer.eos)
        generation = await _unless_gone(request, self._generator.generate(prompt_T, body.n, settings))
        texts, token_texts = self._texts(generation), self._token_texts(generation)
        return json_response(completion_answer(body, generation, texts, token_texts, prompt_T))

    async def chat(self, request: Request) -> Response:
        body = await _parse(request, ChatRequest)
        if body.is_ping:
            return self._pong(ping_answer(body))
        prompt_T = self._tokenizer.render_chat(body.messages, body.tools)
        settings = body.settings(body.token_limit or self._default_max_tokens, self._tokenizer.eos)
        generation = await _unless_gone(request, self._generator.generate(prompt_T, body.n, settings))
        texts, token_texts = self._texts(generation), self._token_texts(generation)
        return json_response(chat_answer(body, generation, texts, token_texts, prompt_T))

    def _pong(self, answer: dict[str, Any]) -> Response:
        reason = self._generator.unavailable()
        return _error(503, reason) if reason else json_response(answer)

    def _prompt(self, body: GenerateRequest) -> Ints:
        if body.input_ids is not None:
            return _ids(body.input_ids)
        if body.text is None:
            raise BadRequestError("a prompt is needed: set input_ids (token ids) or text")
        return self._tokenizer.encode(body.text)

    def _texts(self, generation: Generation) -> list[str]:
        return [self._tokenizer.decode(sample.tokens_T) for sample in generation.samples]

    def _token_texts(self, generation: Generation) -> list[list[str]]:
        return [self._tokenizer.decode_each(sample.tokens_T) for sample in generation.samples]


def inference_app(server: InferenceServer) -> Starlette:
    routes = [
        Route("/health", server.health),
        Route("/generate", _guarded(server.generate), methods=["POST"]),
        Route("/v1/completions", _guarded(server.completions), methods=["POST"]),
        Route("/v1/chat/completions", _guarded(server.chat), methods=["POST"]),
    ]
    return Starlette(routes=routes)


def _guarded(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Refusals are 400 (the client must change something), unavailability is 503 (it may try again)."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except (BadRequestError, SampleRefusedError) as error:
            return _error(400, str(error))
        except UnavailableError as error:
            return _error(503, str(error))
        except _ClientGoneError:
            return Response(status_code=CLIENT_CLOSED_REQUEST)

    return handle


def _error(status_code: int, message: str) -> Response:
    kind = "invalid_request_error" if status_code == 400 else "unavailable"
    return json_response({"error": {"message": message, "type": kind, "code": status_code}}, status_code)


async def _parse(request: Request, model: type[Body]) -> Body:
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the body"
        raise BadRequestError(f"{field}: {first['msg']}") from None


def _ids(ids: list[int]) -> Ints:
    return np.array(ids, np.int64)


class _ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Wait for the work, and cancel it (at the backend too) when the client disconnects."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise _ClientGoneError
        return await working
    finally:
        for task in (working, watching):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
