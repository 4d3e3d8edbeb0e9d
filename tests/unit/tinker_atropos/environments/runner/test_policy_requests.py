"""Our request to `/generate` against atroposlib's own, on the same server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from atroposlib.envs.server_handling.sglang_server import SGLangServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rl_contract.bundled import bundled_model_folder
from tinker_atropos.environments.runner.policy_requests import kept_connections
from tinker_atropos.serving import bind, serve


class Recorder:
    """Keeps what is asked and over which connections."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.ports: list[int] = []

    async def generate(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append((request.headers.get("authorization"), body))
        self.ports.append(request.client.port if request.client else 0)
        if body["sampling_params"].get("temperature") == 9:
            return Response("no", 400)
        answer = {
            "meta_info": {"finish_reason": {"type": "stop"}, "output_token_logprobs": [[-1.0, 5, None], [0, 6, "x"]]}
        }
        return JSONResponse([answer] * body["sampling_params"]["n"] if body["sampling_params"]["n"] > 1 else answer)


@pytest.fixture
async def served_policy() -> AsyncIterator[tuple[Recorder, SGLangServer]]:
    recorder = Recorder()
    app = Starlette(routes=[Route("/generate", recorder.generate, methods=["POST"])])
    async with serve(app, bind("127.0.0.1", 0, "test")) as port:
        tokenizer = str(bundled_model_folder())
        server = SGLangServer(
            APIServerConfig(
                server_type="sglang", model_name="m", tokenizer_name=tokenizer, api_key="x",
                base_url=f"http://127.0.0.1:{port}/v1",
            )
        )  # fmt: skip
        async with server.openai:
            yield recorder, server


@pytest.mark.parametrize(
    "request_",
    [
        {"prompt": "sort 1 2", "n": 1, "max_tokens": 4},
        {"input_ids": [7, 8], "prompt": "ignored", "n": 3, "stop": [1], "rl_purpose": "evaluation", "rl_evaluation": 2},
        {"input_ids": [], "n": 1},
    ],
)
async def test_it_asks_and_returns_what_atroposlib_does(served_policy, request_):
    recorder, server = served_policy
    expected = await server._tokens_and_logprobs_completion_wrapper(model="m", **request_)
    async with kept_connections([server]):
        assert await server._tokens_and_logprobs_completion_wrapper(model="m", **request_) == expected
    assert recorder.asked[0] == recorder.asked[1]


async def test_connections_are_kept_and_shared(served_policy: tuple[Recorder, SGLangServer]) -> None:
    recorder, server = served_policy
    async with kept_connections([server]):
        ask = server._tokens_and_logprobs_completion_wrapper
        for _ in range(2):
            await asyncio.gather(*(ask(model="m", input_ids=[1], n=1) for _ in range(3)))
    assert len(set(recorder.ports[:3])) == 3
    assert set(recorder.ports[3:]) == set(recorder.ports[:3])


async def test_a_refusal_is_the_error_that_atroposlib_raises(served_policy: tuple[Recorder, SGLangServer]) -> None:
    _, server = served_policy
    async with kept_connections([server]):
        with pytest.raises(aiohttp.ClientResponseError):
            await server._tokens_and_logprobs_completion_wrapper(model="m", input_ids=[1], n=1, temperature=9)


async def test_a_server_with_requests_of_its_own_keeps_them() -> None:
    class Own(SGLangServer):
        def __init__(self): ...

    own = Own()
    before = own._tokens_and_logprobs_completion_wrapper
    async with kept_connections([own]):
        assert own._tokens_and_logprobs_completion_wrapper == before
