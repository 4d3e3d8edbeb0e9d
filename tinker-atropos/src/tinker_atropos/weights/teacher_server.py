"""Serve weights of a Tinker backend, or a model of it, as a teacher: `prompt_logprobs` of vLLM's `/v1/completions`."""

import asyncio
import hmac
import logging
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rl_contract.env_vars import TEACHER_API_KEY
from rl_contract.scored_group import MAX_CANDIDATES
from tinker_atropos.chat.request_handling import RefusedRequestError, Told, guarded, parse, unless_gone
from tinker_atropos.chat.sampling import UnavailableError
from tinker_atropos.errors import ConfigError, RunError
from tinker_atropos.serving import bind, json_response, serve
from tinker_atropos.weights.backend_session import ask, session
from tinker_atropos.weights.sample_weights import check_one_is_named, sampling_client

if TYPE_CHECKING:
    import tinker

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TeacherOptions:
    """One of `model_path` and `base_model` is given."""

    model_path: str | None
    base_model: str | None
    host: str
    port: int


class ScoreRequest(BaseModel):
    """What is answered of `POST /v1/completions`; whatever else a client sends about sampling has no effect."""

    prompt: list[int] = Field(min_length=1)
    prompt_logprobs: int = Field(ge=0, le=MAX_CANDIDATES)


async def serve_teacher(options: TeacherOptions) -> None:
    """Serve until SIGTERM or SIGINT. Raises RunError if it cannot start."""
    check_one_is_named(options.model_path, options.base_model)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    with bind(options.host, options.port, "--port") as listener:
        async with session("teacher") as service:
            client = await sampling_client(service, options.model_path, options.base_model)
            app = teacher_app(client, os.environ.get(TEACHER_API_KEY))
            async with serve(app, listener) as port:
                whose = options.model_path or options.base_model
                logger.info("%s is a teacher at http://%s:%d", whose, options.host, port)
                await stopped.wait()


def teacher_app(client: "tinker.SamplingClient", key: str | None) -> Starlette:
    """`key`: what every request has to carry; None: nothing."""

    async def completions(request: Request) -> Response:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if key and not hmac.compare_digest(given.encode(), key.encode()):
            raise RefusedRequestError(f"the key is not that of {TEACHER_API_KEY}", status=401)
        body = await parse(request, ScoreRequest)
        rows = await unless_gone(request, _scored(client, body))
        choice = {"index": 0, "text": "", "logprobs": None, "finish_reason": "length", "prompt_logprobs": rows}
        usage = {"prompt_tokens": len(body.prompt), "completion_tokens": 1, "total_tokens": len(body.prompt) + 1}
        return json_response(
            {
                "id": "scored",
                "object": "text_completion",
                "created": 0,
                "model": "",
                "choices": [choice],
                "usage": usage,
            }
        )

    return Starlette(routes=[Route("/v1/completions", guarded(completions, Told()), methods=["POST"])])


async def _scored(client: "tinker.SamplingClient", body: ScoreRequest) -> list[dict[str, Any] | None]:
    """For each token: itself, then the likeliest in its place."""
    from tinker import types

    prompt, one_token = types.ModelInput.from_ints(body.prompt), types.SamplingParams(max_tokens=1)
    try:
        answer = await ask(
            "scoring a prompt",
            lambda: client.sample(
                prompt, 1, one_token, include_prompt_logprobs=True, topk_prompt_logprobs=body.prompt_logprobs
            ),
        )
    except ConfigError as error:  # the backend refused the prompt
        raise RefusedRequestError(str(error)) from error
    except RunError as error:
        raise UnavailableError(str(error)) from error
    selected_T, top_T = answer.prompt_logprobs, answer.topk_prompt_logprobs or [None] * len(body.prompt)
    return [
        None if logprob is None else {str(each): {"logprob": given} for each, given in [(token, logprob), *(top or ())]}
        for token, logprob, top in zip(body.prompt, selected_T, top_T, strict=True)
    ]
