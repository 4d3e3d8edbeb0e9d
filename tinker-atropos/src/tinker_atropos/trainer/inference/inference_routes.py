"""The inference server that environments sample from: the current policy, recorded in the ledger.

An evaluation begins with `POST /rl/evaluation`, whose answer says which step it is of. Requests that name that step
(`rl_evaluation`) are sampled from that step's policy until the evaluation ends (`DELETE /rl/evaluation/STEP`) or
another one begins, even if training goes on. They are not recorded: they are never trained.

If environments run in other pods, this port is not limited to loopback, and environments may be untrusted code; who is
none does not know the path to it (`environments_path.py`). All
routes are for them: `/health`, `/v1/models`, those to sample, two around an evaluation, and one to report rollouts
that are not trained. None changes the weights or the
newest policy, and only the end of its own connection cancels a request to sample; an evaluation can be ended by any
environment, which costs the run that evaluation. A body is at most MAX_BODY_BYTES, a request at most 1,024 samples that
fill the rest of the context, too many prompts that do not fit end the run, and the chat template is always the
tokenizer's.

Not bounded here: how much is sampled, how often, and how many requests at once. A hostile environment can spend the
run's sampling budget and slow the trainer down; it can mark its samples as an evaluation's, which are never trained.
"""

from collections.abc import Sequence

from pydantic import Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_atropos.arrays import Ints
from tinker_atropos.chat.chat_endpoint import AnyCaller, Endpoint, encoded
from tinker_atropos.chat.chat_rendering import ChatRenderer
from tinker_atropos.chat.openai_requests import InferenceRequest, WireRequest
from tinker_atropos.chat.request_handling import Told, guarded, parse, unless_gone
from tinker_atropos.chat.sampling import GeneratedSamples
from tinker_atropos.serving import json_response
from tinker_atropos.trainer.inference.generation import Generator
from tinker_atropos.trainer.inference.inference_tokens import TokenRequest, token_answer
from tinker_atropos.trainer.inference.sglang_generate import GenerateRequest, generate_answer


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
        limit = params.answer_limit(len(prompt_T), self._default_max_tokens)
        generation = await self._sampled(request, params, prompt_T, limit)
        return json_response(token_answer(body, generation))

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
