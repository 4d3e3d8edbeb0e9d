"""A group as a teacher sees it: the bundled model of the real Tinker service, as `tinker-atropos teacher` serves it."""

import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import numpy as np
import pytest
import tinker
from atroposlib.envs.server_handling.openai_server import OpenAIServer
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from atroposlib.envs.server_handling.sglang_server import SGLangServer
from atroposlib.envs.server_handling.vllm_server import VLLMServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.unit.tinker_atropos.environments.scripted_environment import Capitals, alone
from tinker import types

from rl_contract.bundled import bundled_model_folder
from rl_contract.env_vars import TEACHER_API_KEY, TEACHER_URL
from rl_contract.scored_group import MAX_CANDIDATES, PROMPT_MASK, ScoredGroup
from tinker_atropos.environments.base import EnvironmentConfig
from tinker_atropos.environments.rollout.rollouts import TransportError
from tinker_atropos.environments.rollout.teacher import Teacher
from tinker_atropos.environments.runner.policy_requests import install_prompt_logprobs
from tinker_atropos.errors import ConfigError
from tinker_atropos.serving import bind, serve
from tinker_atropos.weights.teacher_server import teacher_app

KEY = "only-for-students"


@pytest.fixture
def sampling_model(tinker_service) -> Iterator[tinker.SamplingClient]:
    service = tinker.ServiceClient(base_url=tinker_service.url, api_key=tinker_service.key)
    yield service.create_sampling_client(base_model="bundled").result(60)
    service.close("success").result(10)


@pytest.fixture
async def teacher(sampling_model, monkeypatch) -> AsyncIterator[None]:
    install_prompt_logprobs()
    monkeypatch.setenv(TEACHER_API_KEY, KEY)
    async with serve(teacher_app(sampling_model, KEY), bind("127.0.0.1", 0, "--port")) as port:
        monkeypatch.setenv(TEACHER_URL, f"http://127.0.0.1:{port}")
        yield


@asynccontextmanager
async def asked_once(server: Any) -> AsyncIterator[Any]:
    """Atroposlib's server without its retries, whose pauses are seconds, and closed at the end."""
    server._logprobs = type(server)._logprobs.__wrapped__.__get__(server)
    async with server.openai:
        yield server


async def taught(env: Any, **changes: Any) -> ScoredGroup:
    env.check_config()
    group, _ = await env.collect_trajectories("a")
    async with asked_once(env._teacher.server):
        return ScoredGroup.model_validate(await env.postprocess_histories(group | changes))


@pytest.mark.parametrize("top_k", [1, 2, 5])
async def test_the_teacher_speaks_of_sampled_tokens_only_and_says_what_the_model_would_sample(
    sampling_model, teacher, top_k
) -> None:
    env = alone(Capitals, teacher_top_k=top_k, tokenizer_name="bundled")
    group = await taught(env)
    for index, (tokens, masks) in enumerate(zip(group.tokens, group.masks, strict=True)):
        prompt = types.ModelInput.from_ints(tokens)
        truth = sampling_model.sample(
            prompt, 1, types.SamplingParams(max_tokens=1), include_prompt_logprobs=True, topk_prompt_logprobs=5
        ).result(60)
        for position, mask in enumerate(masks):
            ids, logprobs = group.distill_token_ids[index][position], group.distill_logprobs[index][position]
            if mask == PROMPT_MASK:
                expected = []
            elif top_k == 1:
                expected = [(tokens[position], truth.prompt_logprobs[position])]
            else:
                expected = truth.topk_prompt_logprobs[position][:top_k]
            assert ids == [token for token, _ in expected]
            np.testing.assert_allclose(logprobs, [logprob for _, logprob in expected], rtol=1e-4, atol=1e-5)


async def test_a_teacher_that_refuses_costs_the_group_and_says_why(teacher, monkeypatch) -> None:
    monkeypatch.setenv(TEACHER_API_KEY, "wrong")
    env = alone(Capitals, teacher_top_k=2, tokenizer_name="bundled")
    with pytest.raises(Exception, match=r"answers HTTP 401: it refuses the key$"):
        await taught(env)


async def test_token_ids_that_the_teacher_does_not_know_are_refused(teacher) -> None:
    env = alone(Capitals, teacher_top_k=2, tokenizer_name="bundled")
    with pytest.raises(Exception, match="answers HTTP 400: it refuses"):
        await taught(env, tokens=[[100_000]] * 4)


async def test_a_teacher_that_is_away_costs_the_group(monkeypatch) -> None:
    install_prompt_logprobs()
    listener = bind("127.0.0.1", 0, "--port")  # bound and never served: nobody else gets the port
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    monkeypatch.setenv(TEACHER_URL, address)
    env = alone(Capitals, teacher_top_k=2, tokenizer_name="bundled")
    with pytest.raises(aiohttp.ClientConnectorError):
        await taught(env)


@pytest.mark.parametrize("address", [None, "", "teacher:8100"])
def test_a_teacher_without_an_address_is_refused(monkeypatch, address) -> None:
    if address is not None:
        monkeypatch.setenv(TEACHER_URL, address)
    with pytest.raises(ConfigError, match="TEACHER_URL is '"):
        alone(Capitals, teacher_top_k=4).check_config()


def test_a_teacher_speaks_of_groups_of_equal_rewards_too() -> None:
    assert EnvironmentConfig().ensure_scores_are_not_same
    assert not EnvironmentConfig(teacher_top_k=1).ensure_scores_are_not_same
    EnvironmentConfig(teacher_top_k=MAX_CANDIDATES)
    with pytest.raises(ValueError, match="teacher_top_k"):
        EnvironmentConfig(teacher_top_k=MAX_CANDIDATES + 1)


async def test_without_a_teacher_groups_are_as_they_were() -> None:
    env = alone(Capitals)
    env.check_config()
    group, _ = await env.collect_trajectories("a")
    assert await env.postprocess_histories(group) is group
    assert "distill_token_ids" not in group


class Answering:
    """A server in SGLang's shape. It names each token and, if asked, the ones next to it."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def generate(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        tokens = body["input_ids"]
        if 9 in tokens:
            return Response("token 9 is unknown", 400)
        top = [None, *([[-0.5, token + 1, None], [-1.0, token, None]] for token in tokens[1:])]
        told = {
            "input_token_logprobs": [[None if not index else -1.0, token, None] for index, token in enumerate(tokens)],
            "input_top_logprobs": top if body["top_logprobs_num"] else None,
        }
        return JSONResponse({"text": "", "meta_info": told})


async def test_a_teacher_of_sglangs_protocol() -> None:
    install_prompt_logprobs()
    answering = Answering()
    app = Starlette(routes=[Route("/generate", answering.generate, methods=["POST"])])
    async with serve(app, bind("127.0.0.1", 0, "test")) as port:
        address = {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "x", "health_check": False}
        tokenizer = str(bundled_model_folder())
        config = APIServerConfig(server_type="sglang", tokenizer_name=tokenizer, **address)
        group = {"tokens": [[3, 4, 5]], "masks": [[PROMPT_MASK, 4, 5]]}
        async with asked_once(SGLangServer(config)) as server:
            named = await Teacher(server, 2).teach(group)
            assert named["distill_token_ids"] == [[[], [5, 4], [6, 5]]]
            assert named["distill_logprobs"] == [[[], [-0.5, -1.0], [-0.5, -1.0]]]
            scored = await Teacher(server, 1).teach(group)
            assert scored["distill_token_ids"] == [[[], [4], [5]]]
            assert [body["top_logprobs_num"] for body in answering.asked] == [2, 0]
            with pytest.raises(TransportError, match="HTTP 400: it refuses"):
                await Teacher(server, 2).teach({"tokens": [[3, 9]], "masks": [[PROMPT_MASK, 9]]})


async def test_a_server_without_prompt_logprobs_is_told_apart() -> None:
    install_prompt_logprobs()

    async def completions(_request: Request) -> Response:
        return JSONResponse({"choices": [{"index": 0, "text": "", "finish_reason": "length", "logprobs": None}]})

    app = Starlette(routes=[Route("/v1/completions", completions, methods=["POST"])])
    async with serve(app, bind("127.0.0.1", 0, "test")) as port:
        address = {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "x", "health_check": False}
        async with asked_once(OpenAIServer(APIServerConfig(**address))) as server:
            with pytest.raises(TransportError, match="answers without prompt_logprobs"):
                await Teacher(server, 2).teach({"tokens": [[3, 4]], "masks": [[PROMPT_MASK, 4]]})


INNER = "the credentials of another service"


class Hostile:
    """A server that answers everything in one way, and another service, which it sends its callers to."""

    def __init__(self, response: Response) -> None:
        self.response = response
        self.asked: list[tuple[str, str | None]] = []

    async def answer(self, request: Request) -> Response:
        self.asked.append((request.url.path, request.headers.get("authorization")))
        return Response(INNER) if request.url.path == "/inner" else self.response

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{rest:path}", self.answer, methods=["GET", "POST"])])


@pytest.mark.parametrize("api", ["openai", "sglang", "vllm"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed_with_the_key(monkeypatch, api, status) -> None:
    hostile = Hostile(Response(INNER, status, {"location": "/inner"}))
    message = await refused(hostile, monkeypatch, api)
    assert f"answers HTTP {status}: redirects are not followed" in message
    assert [(path, key) for path, key in hostile.asked if path == "/inner"] == []
    assert {key for _, key in hostile.asked} == {f"Bearer {KEY}"}


@pytest.mark.parametrize("api", ["openai", "sglang", "vllm"])
@pytest.mark.parametrize(
    "response",
    [
        *(Response(INNER, status) for status in (200, 400, 401, 403, 404, 422, 500, 503)),
        *(JSONResponse({"error": {"message": INNER}, "detail": INNER}, status) for status in (200, 400, 500)),
        JSONResponse({"choices": [{"prompt_logprobs": [{INNER: 0}]}], "prompt_logprobs": [{INNER: 0}]}),
        JSONResponse({"meta_info": {"input_token_logprobs": [[INNER, INNER, INNER]]}}),
    ],
)
async def test_nothing_that_the_server_says_gets_into_an_error(monkeypatch, api, response) -> None:
    assert INNER not in await refused(Hostile(response), monkeypatch, api)


async def refused(hostile: Hostile, monkeypatch: Any, api: str) -> str:
    """What an error says, and all that caused it."""
    install_prompt_logprobs()
    monkeypatch.setenv(TEACHER_API_KEY, KEY)
    async with serve(hostile.app, bind("127.0.0.1", 0, "test")) as port:
        monkeypatch.setenv(TEACHER_URL, f"http://127.0.0.1:{port}")
        tokenizer = str(bundled_model_folder())
        teacher = Teacher.of(EnvironmentConfig(teacher_top_k=2, teacher_api=api, tokenizer_name=tokenizer))
        teacher.server._logprobs = type(teacher.server)._logprobs.__wrapped__.__get__(teacher.server)
        with pytest.raises(TransportError) as caught:
            await teacher.teach({"tokens": [[3, 4]], "masks": [[PROMPT_MASK, 4]]})
    return "".join(traceback.format_exception(caught.value))


async def test_atropos_own_shapes_are_read() -> None:
    install_prompt_logprobs()
    bodies = [
        {"prompt_logprobs": [None, {"4": -0.5, "5": -1.0}]},
        {"prompt_logprobs": [[None, {"4": {"logprob": -0.5}, "5": {"logprob": -1.0}}]]},
    ]

    async def generate(_request: Request) -> Response:
        return JSONResponse(bodies.pop())

    app = Starlette(routes=[Route("/generate", generate, methods=["POST"])])
    async with serve(app, bind("127.0.0.1", 0, "test")) as port:
        address = {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "x", "health_check": False}
        server = VLLMServer(APIServerConfig(tokenizer_name=str(bundled_model_folder()), **address))
        for _ in range(2):
            named = await Teacher(server, 2).teach({"tokens": [[3, 4]], "masks": [[PROMPT_MASK, 4]]})
            assert (named["distill_token_ids"], named["distill_logprobs"]) == ([[[], [4, 5]]], [[[], [-0.5, -1.0]]])
