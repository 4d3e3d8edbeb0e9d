"""Registering over real HTTP, with an api that starts late, fails, or refuses."""

import asyncio
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tinker_atropos.environments.runner.reporting.registration import EnvironmentRegistration
from tinker_atropos.errors import InternalError
from tinker_atropos.serving import bind, serve

ENV = SimpleNamespace(
    config=SimpleNamespace(
        max_token_length=64, wandb_name="sort", inference_weight=1.0, min_batch_allocation=None, group_size=4
    )
)


def api(answers: list[Response], asked: list[dict]) -> Starlette:
    async def register(request: Request) -> Response:
        asked.append(await request.json())
        return answers.pop(0)

    return Starlette(routes=[Route("/register-env", register, methods=["POST"])])


async def test_a_closed_port_and_a_failing_api_are_waited_out() -> None:
    asked: list[dict] = []
    answers: list[Response] = [PlainTextResponse("disk full", 503), JSONResponse({"status": "success"})]
    listener = bind("127.0.0.1", 0, "RL_API_URL")  # bound, but not listening yet: refused
    registration = EnvironmentRegistration(f"http://127.0.0.1:{listener.getsockname()[1]}", index=3)
    asking = asyncio.create_task(registration.ask(ENV))
    while registration.trouble is None:  # bounded by the test's time limit
        await asyncio.sleep(0.01)
    assert registration.trouble.startswith("ConnectError")
    async with serve(api(answers, asked), listener):
        assert await asyncio.wait_for(asking, 60) == {"status": "success"}
    assert registration.trouble is None
    assert asked[-1] == {
        "max_token_length": 64,
        "desired_name": "sort",
        "weight": 1.0,
        "min_batch_allocation": None,
        "group_size": 4,
        "index": 3,
    }


async def test_a_refusal_is_reported_at_once() -> None:
    async with serve(api([PlainTextResponse("too many", 409)], []), bind("127.0.0.1", 0, "RL_API_URL")) as port:
        with pytest.raises(InternalError, match=r"refused this environment \(409\): too many"):
            await EnvironmentRegistration(f"http://127.0.0.1:{port}", index=0).ask(ENV)
