"""What a stranger's code gets of the provider, through a process that has the key."""

import json
from typing import Any

import httpx
import pytest

from tinker_atropos.environments.trial.provider import Provider
from tinker_atropos.environments.trial.provider_gate import gate_app

KEY = "sk-or-0123456789abcdef"
CHAT = {"model": "right", "messages": [{"role": "user", "content": "hi"}], "top_k": 7}


class Upstream:
    """A provider that answers in one way."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.asked: list[httpx.Request] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        return self.response


async def passed(upstream: Upstream, path: str = "/chat/completions", body: Any = None) -> httpx.Response:
    provider = Provider("https://provider.example/v1", "right", KEY)
    async with httpx.AsyncClient(transport=httpx.MockTransport(upstream.answer)) as client:
        app = httpx.ASGITransport(gate_app(provider, ("right", "wrong"), client))
        async with httpx.AsyncClient(transport=app, base_url="http://127.0.0.1:8001") as environment:
            headers = {"authorization": "Bearer none", "x-other": "1"}
            return await environment.post(path, json=body or CHAT, headers=headers)


@pytest.mark.parametrize("path", ["/chat/completions", "/completions"])
async def test_requests_are_passed_on_with_the_key(path: str) -> None:
    upstream = Upstream(httpx.Response(200, json={"choices": []}))
    response = await passed(upstream, path)
    [asked] = upstream.asked
    assert (str(asked.url), json.loads(asked.content)) == (f"https://provider.example/v1{path}", CHAT)
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert "x-other" not in asked.headers
    assert (response.status_code, response.json()) == (200, {"choices": []})


@pytest.mark.parametrize(
    "path", ["/models", "/keys", "/", "/../keys", "/chat/completions/../../keys", "//evil.example/x"]
)
async def test_nothing_else_of_the_provider_is_reached(path: str) -> None:
    upstream = Upstream(httpx.Response(200))
    assert (await passed(upstream, path)).status_code == 404
    assert upstream.asked == []


@pytest.mark.parametrize("body", [{**CHAT, "model": "dearest"}, {"messages": []}, {"model": ["right"]}])
async def test_other_models_are_refused(body: dict[str, Any]) -> None:
    upstream = Upstream(httpx.Response(200))
    assert (await passed(upstream, body=body)).status_code in (400, 403)
    assert upstream.asked == []


@pytest.mark.parametrize("status", [200, 401, 404, 500])
async def test_a_provider_that_repeats_the_key_tells_it_to_nobody(status: int) -> None:
    response = await passed(Upstream(httpx.Response(status, json={"error": {"message": f"no: {KEY}"}})))
    assert (response.status_code, response.json()) == (status, {"error": {"message": "no: [redacted]"}})


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_not_followed(status: int) -> None:
    upstream = Upstream(httpx.Response(status, headers={"location": f"http://elsewhere/{KEY}"}))
    response = await passed(upstream)
    assert (len(upstream.asked), response.status_code, "location" in response.headers) == (1, status, False)
