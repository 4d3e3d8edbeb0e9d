"""Servers inside a process: bound before they are announced, and the ops port's three routes."""

import asyncio
import socket
import subprocess
import sys

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tinker_atropos.errors import InternalError
from tinker_atropos.serving import below, bind, ops_app, serve

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
@pytest.mark.parametrize("peer", ["10.1.2.3", "127.0.0.6"])
async def test_anybody_else_is_refused(path: str, peer: str) -> None:
    answer = await asked(path, peer)
    assert answer.status_code == 403
    assert peer in answer.json()["detail"]
    assert SECRET not in answer.text


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
async def test_the_runs_own_pod_needs_no_path(peer: str) -> None:
    assert (await asked("/rl/lease/environment", peer)).status_code == 200


async def test_without_a_path_everybody_is_served() -> None:
    assert (await asked("/rl/lease/environment", "10.1.2.3", secret="")).status_code == 200


TOKEN = "t0ken-of-this-pod"


async def ops_asked(
    path: str, peer: str, sent: str | None, host: str = "10.1.2.4:8002", token: str | None = TOKEN
) -> int:
    """The status code of the ops port of a trainer, whose rollouts are among its routes."""
    extra = [Route("/history", show), Route("/rollouts", show), Route("/rollouts/{name}", show)]
    app = ops_app(lambda: None, lambda: {"step": 3}, extra, CollectorRegistry(), token)
    headers = {"Host": host} | ({} if sent is None else {"X-RL-Ops-Token": sent})
    transport = httpx.ASGITransport(app, client=(peer, 1234))
    async with httpx.AsyncClient(transport=transport, base_url="http://trainer") as client:
        answer = await client.get(path, headers=headers)
    assert TOKEN not in answer.text
    return answer.status_code


SHOWS_A_RUN = ["/status", "/history?figures=loss", "/rollouts", "/rollouts/000001-1.jsonl.zst", "//rollouts", "/absent"]


@pytest.mark.parametrize("path", SHOWS_A_RUN)
@pytest.mark.parametrize("sent", [None, "", "t0ken", f"{TOKEN}x"])
@pytest.mark.parametrize("peer", ["10.1.2.3", "127.0.0.1"])
async def test_what_shows_a_run_takes_the_pods_token(path: str, sent: str | None, peer: str) -> None:
    assert await ops_asked(path, peer, sent) == 401


@pytest.mark.parametrize("path", SHOWS_A_RUN[:4])
async def test_who_has_the_token_is_answered(path: str) -> None:
    assert await ops_asked(path, "10.1.2.3", TOKEN) == 200


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
@pytest.mark.parametrize("token", [TOKEN, None])
async def test_probes_and_prometheus_need_none(path: str, token: str | None) -> None:
    assert await ops_asked(path, "10.1.2.3", None, token=token) == 200


CALLERS: dict[str, tuple[str, str, int]] = {
    "another pod": ("10.1.2.3", "10.1.2.4:8003", 403),
    "another pod that says otherwise": ("10.1.2.3", "localhost", 403),
    "another pod, by way of a sidecar": ("127.0.0.6", "localhost:8003", 403),
    "the same pod": ("127.0.0.1", "127.0.0.1:8003", 200),
    "the same pod, by IPv6": ("::1", "[::1]:8003", 200),
    "kubectl port-forward": ("127.0.0.1", "localhost:9000", 200),
    "a web page, by a name that leads here": ("127.0.0.1", "evil.example:8003", 403),
}


@pytest.mark.parametrize(("peer", "host", "code"), CALLERS.values(), ids=CALLERS)
async def test_a_process_without_a_token_answers_its_own_machine(peer: str, host: str, code: int) -> None:
    assert await ops_asked("/status", peer, "", host, token=None) == code


async def get(port: int, path: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
        return await client.get(path)


def test_a_port_in_use_is_named_with_its_setting() -> None:
    with bind("127.0.0.1", 0, "RL_OPS_PORT") as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InternalError, match=f"port {port} on 127.0.0.1 is in use; .* set RL_OPS_PORT"):
            bind("127.0.0.1", port, "RL_OPS_PORT")


def test_an_address_of_another_machine() -> None:
    with pytest.raises(InternalError, match=r"cannot listen on 203\.0\.113\.1:0 \(RL_API_URL\): "):
        bind("203.0.113.1", 0, "RL_API_URL")


async def test_a_server_answers_while_its_block_runs_and_frees_its_port() -> None:
    registry = CollectorRegistry()
    Counter("served", "Requests.", registry=registry).inc()
    reasons = [None, "the journal is full"]
    extra = [Route("/history", lambda _request: PlainTextResponse("points"))]
    app = ops_app(lambda: reasons.pop(0), lambda: {"step": 3}, extra, registry)
    async with serve(app, bind("127.0.0.1", 0, "RL_OPS_PORT")) as port:
        healthy, unhealthy = await get(port, "/healthz"), await get(port, "/healthz")
        assert (healthy.status_code, healthy.text) == (200, "ok")
        assert (unhealthy.status_code, unhealthy.text) == (503, "the journal is full")
        assert (await get(port, "/status")).json() == {"step": 3}
        assert "served_total 1.0" in (await get(port, "/metrics")).text
        assert (await get(port, "/history")).text == "points"
        assert (await get(port, "/shutdown")).status_code == 404
    bind("127.0.0.1", port, "RL_OPS_PORT").close()


async def test_a_request_in_flight_does_not_delay_the_end() -> None:
    async def never(_request: object) -> PlainTextResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with asyncio.timeout(60):
        async with serve(Starlette(routes=[Route("/", never)]), bind("127.0.0.1", 0, "RL_API_URL")) as port:
            with socket.create_connection(("127.0.0.1", port)) as waiting:
                waiting.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
                assert (await get(port, "/absent")).status_code == 404


async def test_the_end_of_the_block_passes_its_error_on() -> None:
    with pytest.raises(ZeroDivisionError):
        async with serve(Starlette(), bind("127.0.0.1", 0, "RL_API_URL")):
            raise ZeroDivisionError


@pytest.mark.process
def test_a_request_cut_off_by_the_end_of_the_server_logs_no_error() -> None:
    """In a separate process: the log is written while the event loop shuts down."""
    program = """
import asyncio, httpx, logging
from starlette.applications import Starlette
from starlette.routing import Route
from tinker_atropos.serving import bind, serve
logging.basicConfig()
async def main():
    begun = asyncio.Event()
    async def endless(request):
        begun.set()
        await asyncio.Event().wait()
    async with serve(Starlette(routes=[Route("/", endless)]), bind("127.0.0.1", 0, "X")) as port:
        asyncio.create_task(httpx.AsyncClient(trust_env=False).get(f"http://127.0.0.1:{port}/"))
        await begun.wait()
asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "Traceback" not in ended.stderr, ended.stderr
