"""The inference server that environments sample from: the current policy, recorded in the ledger.

An evaluation begins with `POST /rl/evaluation`, whose answer says which step it is of. Requests that name that step
(`rl_evaluation`) are sampled from that step's policy until the evaluation ends (`DELETE /rl/evaluation/STEP`) or
another one begins, even if training goes on. They are not recorded: they are never trained.

If environments run in other pods, this port is not limited to loopback, and environments may be untrusted code; who is
none does not know the path to it (`environments_path.py`). All
routes are for them: `/health`, `/v1/models`, four to sample, two around an evaluation. None changes the weights or the
newest policy, and only the end of its own connection cancels a request to sample; an evaluation can be ended by any
environment, which costs the run that evaluation. A body is at most MAX_BODY_BYTES, a request at most 1,024 samples that
fill the rest of the context, too many prompts that do not fit end the run, and the chat template is always the
tokenizer's.

Not bounded here: how much is sampled, how often, and how many requests at once. A hostile environment can spend the
run's sampling budget and slow the trainer down; it can mark its samples as an evaluation's, which are never trained.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_atropos.serving import json_response, read_limited
from tinker_atropos.trainer.backend.policy import SampleRefusedError
from tinker_atropos.trainer.data.groups import Ints
from tinker_atropos.trainer.inference.generation import (
    ContextOverflowError,
    GeneratedSamples,
    Generator,
    UnavailableError,
)
from tinker_atropos.trainer.inference.inference_answers import (
    chat_answer,
    completion_answer,
    generate_answer,
    ping_answer,
)
from tinker_atropos.trainer.inference.inference_tokens import (
    SEQUENCE_FULL,
    SequenceFullError,
    TokenRequest,
    models_answer,
    token_answer,
)
from tinker_atropos.trainer.inference.inference_wire import (
    ChatRequest,
    CompletionRequest,
    EvaluationRequest,
    GenerateRequest,
    InferenceRequest,
)
from tinker_atropos.trainer.inference.tokenizer import ChatError, Tokenizer

T = TypeVar("T")
Body = TypeVar("Body", bound=BaseModel)

CLIENT_CLOSED_REQUEST = 499
"""nginx's code for a client that disconnected; it is never received."""


MAX_BODY_BYTES = 8 * 2**20
"""About a million token ids, with their commas."""

MAX_TOLD = 50
"""How many kinds of refusals are logged: a message may quote what the client sent."""

logger = logging.getLogger(__name__)


class BadRequestError(Exception):
    """The request does not fit the route; the message names the field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field or None


class BodyTooLargeError(Exception):
    """The body is longer than MAX_BODY_BYTES."""


class InferenceServer:
    """Handlers of the data port. `default_max_tokens` bounds a chat answer whose request names no limit; `model` is the
    name of the only model.
    """

    def __init__(self, generator: Generator, tokenizer: Tokenizer, default_max_tokens: int, model: str) -> None:
        self._generator = generator
        self._tokenizer = tokenizer
        self._default_max_tokens = default_max_tokens
        self._model = model

    async def health(self, _request: Request) -> Response:
        reason = self._generator.unavailable()
        return json_response({"status": reason or "ok"}, 503 if reason else 200)

    async def models(self, _request: Request) -> Response:
        return json_response(models_answer(self._model, self._generator.context_length))

    async def begin_evaluation(self, request: Request) -> Response:
        body = await _parse(request, EvaluationRequest)
        return json_response({"step": self._generator.begin_evaluation(body.due_step)})

    async def end_evaluation(self, request: Request) -> Response:
        self._generator.end_evaluation(request.path_params["step"])
        return json_response({})

    async def generate(self, request: Request) -> Response:
        body = await _parse(request, GenerateRequest)
        params = body.sampling_params
        prompt_T = self._encoded(body.text if body.input_ids is None else body.input_ids)
        generation = await self._sampled(request, params, prompt_T, params.max_new_tokens)
        return json_response(generate_answer(body, generation, prompt_T, self._tokenizer))

    async def generate_from_tokens(self, request: Request) -> Response:
        """`/inference/v1/generate` of `renderers`. The header X-Session-ID, which names a rollout, is not read."""
        body = await _parse(request, TokenRequest)
        params = body.sampling_params
        prompt_T = self._encoded(body.token_ids)
        limit = params.answer_limit(len(prompt_T), self._default_max_tokens)
        generation = await self._sampled(request, params, prompt_T, limit)
        return json_response(token_answer(body, generation))

    async def completions(self, request: Request) -> Response:
        body = await _parse(request, CompletionRequest)
        if body.is_ping:
            return self._pong(ping_answer(body))
        prompt_T = self._encoded(body.prompt)
        generation = await self._sampled(request, body, prompt_T, body.max_tokens)
        return json_response(completion_answer(body, generation, prompt_T, self._tokenizer))

    async def chat(self, request: Request) -> Response:
        body = await _parse(request, ChatRequest)
        if body.is_ping:
            return self._pong(ping_answer(body))
        prompt_T = self._tokenizer.render_chat(body.messages, body.shown_tools, body.chat_template_kwargs)
        generation = await self._sampled(request, body, prompt_T, body.token_limit or self._default_max_tokens)
        return json_response(chat_answer(body, generation, prompt_T, self._tokenizer))

    async def _sampled(
        self, request: Request, body: InferenceRequest, prompt_T: Ints, max_tokens: int
    ) -> GeneratedSamples:
        settings = body.settings(max_tokens, self._tokenizer.eos, self._tokenizer.eos_id)
        evaluated_step = body.rl_evaluation if body.rl_purpose == "evaluation" else None
        work = self._generator.generate(prompt_T, body.n, settings, body.rl_purpose, evaluated_step)
        return await _unless_gone(request, work)

    def _pong(self, answer: dict[str, Any]) -> Response:
        reason = self._generator.unavailable()
        return _error(503, reason) if reason else json_response(answer)

    def _encoded(self, prompt: str | list[int] | None) -> Ints:
        if isinstance(prompt, list):
            return np.array(prompt, np.int64)
        return self._tokenizer.encode(prompt or "")


def inference_app(server: InferenceServer) -> Starlette:
    told: set[str] = set()
    posts = {
        "/generate": server.generate,
        "/inference/v1/generate": server.generate_from_tokens,
        "/v1/completions": server.completions,
        "/v1/chat/completions": server.chat,
        "/rl/evaluation": server.begin_evaluation,
    }
    return Starlette(
        routes=[
            Route("/health", server.health),
            Route("/v1/models", server.models),
            Route("/rl/evaluation/{step:int}", server.end_evaluation, methods=["DELETE"]),
            *(Route(path, _guarded(handler, told), methods=["POST"]) for path, handler in posts.items()),
        ]
    )


def _guarded(
    handler: Callable[[Request], Awaitable[Response]], told: set[str]
) -> Callable[[Request], Awaitable[Response]]:
    """Refusals are 400 (the client must change something), unavailability is 503 (it may try again)."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except SequenceFullError as error:
            return _error(400, str(error), SEQUENCE_FULL)
        except (BadRequestError, SampleRefusedError, ChatError) as error:
            _tell(request, str(error), told)
            code = "context_length_exceeded" if isinstance(error, ContextOverflowError) else None
            return _error(400, str(error), code, error.field if isinstance(error, BadRequestError) else None)
        except BodyTooLargeError as error:
            return _error(413, str(error))
        except UnavailableError as error:
            return _error(503, str(error))
        except _ClientGoneError:
            return Response(status_code=CLIENT_CLOSED_REQUEST)

    return handle


def _tell(request: Request, message: str, told: set[str]) -> None:
    """Log the first refusal of each kind: sglang's clients discard the error message."""
    kind = re.sub(r"\d+", "N", message)
    if kind not in told and len(told) < MAX_TOLD:
        told.add(kind)
        logger.warning("refused a request to %s: %s", request.url.path, message)


def _error(status_code: int, message: str, code: str | None = None, param: str | None = None) -> Response:
    """OpenAI's shape, which sglang's clients do not read."""
    kind = "unavailable" if status_code == 503 else "invalid_request_error"
    return json_response({"error": {"message": message, "type": kind, "param": param, "code": code}}, status_code)


async def _parse(request: Request, model: type[Body]) -> Body:
    try:
        return model.model_validate_json(await _body(request))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        reason = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
        raise BadRequestError(field, f"{field}: {reason}" if field else reason) from None


async def _body(request: Request) -> bytes:
    body, size = await read_limited(request, MAX_BODY_BYTES)
    if size > MAX_BODY_BYTES:
        raise BodyTooLargeError(f"the body has {size} bytes; the limit is {MAX_BODY_BYTES}: shorten the prompt")
    return body


class _ClientGoneError(Exception):
    """The client is no longer waiting for the answer."""


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
