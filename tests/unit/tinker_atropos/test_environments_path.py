"""Below which path a data port answers whom."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tinker_atropos.environments_path import below

SECRET = "/0123456789abcdef"


async def show(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{request.url.path}?{request.url.query}")


APP = Starlette(routes=[Route("/rl/lease/environment", show), Route("/", show)])


async def asked(path: str, peer: str, secret: str = SECRET) -> httpx.Response:
    transport = httpx.ASGITransport(below(secret, APP), client=(peer, 1234))
    async with httpx.AsyncClient(transport=transport, base_url="http://run.lab.svc:8000") as client:
        return await client.get(path)


@pytest.mark.parametrize("peer", ["10.1.2.3", "127.0.0.1", "::1"])
@pytest.mark.parametrize("path", ["/rl/lease/environment", "/"])
async def test_who_knows_the_path_is_served(peer: str, path: str) -> None:
    answer = await asked(f"{SECRET}{path}?a=1", peer)
    assert (answer.status_code, answer.text) == (200, f"{path}?a=1")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/rl/lease/environment",
        SECRET,
        f"{SECRET}x/rl/lease/environment",
        f"/{SECRET}/rl/lease/environment",
        f"{SECRET[:-1]}/rl/lease/environment",
        f"/rl{SECRET}/lease/environment",
    ],
)
async def test_anybody_else_is_refused(path: str) -> None:
    answer = await asked(path, "10.1.2.3")
    assert answer.status_code == 403
    assert "10.1.2.3" in answer.json()["detail"]
    assert SECRET not in answer.text


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.9.9", "::1"])
async def test_the_runs_own_pod_needs_no_path(peer: str) -> None:
    assert (await asked("/rl/lease/environment", peer)).status_code == 200


async def test_without_a_path_everybody_is_served() -> None:
    assert (await asked("/rl/lease/environment", "10.1.2.3", secret="")).status_code == 200
