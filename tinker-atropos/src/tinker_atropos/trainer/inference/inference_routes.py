"""The inference server that environments sample from: the current policy, recorded in the ledger.

An evaluation begins with `POST /rl/evaluation`, whose answer says which step it is of. Requests that name that step
(`rl_evaluation`) are sampled from that step's policy until the evaluation ends (`DELETE /rl/evaluation/STEP`) or
another one begins, even if training goes on. They are not recorded: they are never trained.

If environments run in other pods, this port is not limited to loopback, and environments may be untrusted code; who is
none does not know the path to it (`serving.py`). All
routes are for them: `/health`, `/v1/models`, those to sample, two around an evaluation, and one to report rollouts
that are not trained. None changes the weights or the
newest policy, and only the end of its own connection cancels a request to sample; an evaluation can be ended by any
environment, which costs the run that evaluation. A body is at most MAX_BODY_BYTES, a request at most 1,024 samples that
fill the rest of the context, too many prompts that do not fit end the run, and the chat template is always the
tokenizer's.

Not bounded here: how much is sampled, how often, and how many requests at once. A hostile environment can spend the
run's sampling budget and slow the trainer down; it can mark its samples as an evaluation's, which are never trained.

atroposlib's servers ask for token ids with sglang's `POST /generate`, the client of the library `renderers` (0.1.12)
with `POST /inference/v1/generate`: verifiers samples through that client. It renders chats itself, sends token ids, and
takes every sampled token's id and logprob from the answer; it rejects an answer that leaves one of them out.
"""

import uuid
from collections.abc import Sequence
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, model_validator
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_atropos.chat.chat_endpoint import AnyCaller, Endpoint, encoded
from tinker_atropos.chat.chat_rendering import ChatRenderer
from tinker_atropos.chat.openai_answers import Written, write
from tinker_atropos.chat.openai_requests import (
    InferenceRequest,
    UnsupportedFieldError,
    WireRequest,
    sampled_tokens_only,
)
from tinker_atropos.chat.request_handling import RefusedRequestError, Told, guarded, parse, unless_gone
from tinker_atropos.chat.sampling import GeneratedSamples, Ints, Sample, seed_from
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.serving import json_response
from tinker_atropos.trainer.inference.generation import Generator

SEQUENCE_FULL: Final = "sequence_full"
"""The code of the answer that ends a conversation at its `rl_max_length`. It is not a fault, and is not logged."""


class TokenSampling(InferenceRequest):
    """`max_tokens` None: as many as a chat that names no limit, which is what this client renders.

    verifiers sends the fields of its `SamplingConfig` as they are, additional ones too: an evaluation is marked by
    `vf.SamplingConfig(temperature=1.0, max_tokens=64, rl_purpose="evaluation", rl_evaluation=STEP)`. It has one
    `max_tokens` for all turns of an episode, and does not know how long a prompt is: `rl_max_length` bounds prompt and
    answer together. `rl_seed` is one for all turns, too: a request's seed follows from it and the prompt.
    """

    max_tokens: int | None = Field(default=None, ge=1)
    rl_max_length: int | None = Field(default=None, ge=1)
    rl_seed: int | None = None
    logprobs: Annotated[bool | int | None, BeforeValidator(sampled_tokens_only)] = None

    def answer_limit(self, prompt_length: int, default: int) -> int:
        """Most tokens that are sampled after a prompt. Raises RefusedRequestError if there is room for none."""
        limit = self.max_tokens or default
        if self.rl_max_length is None:
            return limit
        if prompt_length >= self.rl_max_length:
            raise RefusedRequestError(
                f"the prompt has {prompt_length} tokens, and sampling_params.rl_max_length is {self.rl_max_length}: "
                f"there is no room for an answer",
                code=SEQUENCE_FULL,
            )
        return min(limit, self.rl_max_length - prompt_length)


class TokenRequest(WireRequest):
    """One prompt in token ids. A run has one model: `model` selects nothing, as on the other routes."""

    token_ids: list[int]
    sampling_params: TokenSampling = TokenSampling()
    model: str = ""
    request_id: str | None = None


def _choice(index: int, sample: Sample) -> dict[str, object]:
    """All sampled tokens, the stop that ended it included, each with its logprob."""
    tokens, logprobs = sample.tokens_T.tolist(), sample.logprobs_T.tolist()
    content = [
        {"token": f"token_id:{token}", "logprob": logprob} for token, logprob in zip(tokens, logprobs, strict=True)
    ]
    return {
        "index": index,
        "token_ids": tokens,
        "finish_reason": sample.stop_reason,
        "logprobs": {"content": content},
    }


class SglangSampling(InferenceRequest):
    max_new_tokens: int = Field(default=128, ge=1)


class GenerateRequest(WireRequest):
    """`POST /generate` in sglang's shape: `text` or `input_ids` of one prompt."""

    text: str | None = None
    input_ids: list[int] | None = None
    sampling_params: SglangSampling = SglangSampling()
    return_text_in_logprobs: bool = False

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        if (self.text is None) == (self.input_ids is None):
            raise UnsupportedFieldError("a prompt is needed, once: set input_ids (token ids) or text")
        return self


def generate_answer(
    body: GenerateRequest, generation: GeneratedSamples, prompt_T: Ints, tokenizer: Tokenizer
) -> object:
    """One object for one sample, a list for several. `policy_step` is ours; sglang's clients ignore it."""
    answers = [
        {
            "text": written.text,
            "output_ids": written.sample.tokens_T.tolist(),
            "meta_info": {
                "id": uuid.uuid4().hex,
                "finish_reason": _sglang_finish(written),
                "prompt_tokens": len(prompt_T),
                "completion_tokens": len(written.sample.tokens_T),
                "policy_step": generation.policy_step,
                "output_token_logprobs": _sglang_logprobs(
                    written.sample, tokenizer if body.return_text_in_logprobs else None
                ),
            },
        }
        for written in (write(sample, body.sampling_params, tokenizer) for sample in generation.samples)
    ]
    return answers[0] if len(answers) == 1 else answers


def _sglang_finish(written: Written) -> dict[str, object]:
    if written.sample.stop_reason == "length":
        return {"type": "length", "length": len(written.sample.tokens_T)}
    return {"type": "stop", "matched": written.matched}


def _sglang_logprobs(sample: Sample, tokenizer: Tokenizer | None) -> list[tuple[float, int, str | None]]:
    texts = tokenizer.decode_each(sample.tokens_T) if tokenizer else [None] * len(sample.tokens_T)
    return list(zip(sample.logprobs_T.tolist(), sample.tokens_T.tolist(), texts, strict=True))


class EvaluationRequest(WireRequest):
    """`POST /rl/evaluation`: an evaluation begins, which is due at `due_step` or was."""

    due_step: int = Field(ge=0)


class InferenceServer:
    """Handlers of the data port. `default_max_tokens` bounds a chat answer whose request names no limit; `model` is the
    name of the only model.
    """

    def __init__(self, generator: Generator, renderer: ChatRenderer, default_max_tokens: int, model: str) -> None:
        self._generator = generator
        self._renderer = renderer
        self._default_max_tokens = default_max_tokens
        caller = AnyCaller(generator, renderer)
        self._endpoint = Endpoint(model, renderer, default_max_tokens, lambda _request: caller)

    async def health(self, _request: Request) -> Response:
        reason = self._generator.unavailable()
        return json_response({"status": reason or "ok"}, 503 if reason else 200)

    async def begin_evaluation(self, request: Request) -> Response:
        body = await parse(request, EvaluationRequest)
        return json_response({"step": self._generator.begin_evaluation(body.due_step)})

    async def end_evaluation(self, request: Request) -> Response:
        self._generator.end_evaluation(request.path_params["step"])
        return json_response({})

    async def generate(self, request: Request) -> Response:
        body = await parse(request, GenerateRequest)
        params = body.sampling_params
        prompt_T = encoded(self._renderer, body.text if body.input_ids is None else body.input_ids)
        generation = await self._sampled(request, params, prompt_T, params.max_new_tokens)
        return json_response(generate_answer(body, generation, prompt_T, self._renderer.tokenizer))

    async def generate_from_tokens(self, request: Request) -> Response:
        """`/inference/v1/generate` of `renderers`. The header X-Session-ID, which names a rollout, is not read."""
        body = await parse(request, TokenRequest)
        params = body.sampling_params
        prompt_T = encoded(self._renderer, body.token_ids)
        if params.seed is None and params.rl_seed is not None:
            params = params.model_copy(update={"seed": seed_from(params.rl_seed, prompt_T.tolist())})
        limit = params.answer_limit(len(prompt_T), self._default_max_tokens)
        generation = await self._sampled(request, params, prompt_T, limit)
        answer = {
            "request_id": body.request_id or uuid.uuid4().hex,
            "choices": [_choice(index, sample) for index, sample in enumerate(generation.samples)],
            "policy_step": generation.policy_step,
        }
        return json_response(answer)

    async def _sampled(
        self, request: Request, body: InferenceRequest, prompt_T: Ints, max_tokens: int
    ) -> GeneratedSamples:
        tokenizer = self._renderer.tokenizer
        settings = body.settings(max_tokens, tokenizer.eos, tokenizer.eos_id)
        work = self._generator.generate(prompt_T, body.n, settings, body.rl_purpose, body.evaluated_step)
        return await unless_gone(request, work)

    def routes(self) -> list[Route]:
        told = Told()
        posts = {
            "/generate": self.generate,
            "/inference/v1/generate": self.generate_from_tokens,
            "/rl/evaluation": self.begin_evaluation,
        }
        return [
            Route("/health", self.health),
            Route("/rl/evaluation/{step:int}", self.end_evaluation, methods=["DELETE"]),
            *(Route(path, guarded(handler, told), methods=["POST"]) for path, handler in posts.items()),
            *self._endpoint.routes(told),
        ]


def inference_app(server: InferenceServer, others: Sequence[Route] = ()) -> Starlette:
    return Starlette(routes=[*server.routes(), *others])
