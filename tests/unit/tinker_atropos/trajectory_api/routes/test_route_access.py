"""Which peers are answered: the trainer's routes on loopback only, if the port is open to others."""

import socket
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.routing import Route

from tinker_atropos.serving import bind, serve
from tinker_atropos.trajectory_api.routes import route_access
from tinker_atropos.trajectory_api.routes.api_routes import ROUTES, trajectory_app

TRAINERS = {
    ("POST", "/register"),
    ("GET", "/batch"),
    ("GET", "/latest_example"),
    ("PUT", "/rl/lease/trainer"),
    ("POST", "/rl/progress"),
    ("POST", "/rl/drop"),
    ("GET", "/rl/books"),
    ("GET", "/rl/metrics"),
}


def routes() -> set[tuple[str, str]]:
    return {(method, route.path) for route in ROUTES if isinstance(route, Route) for method in route.methods or ()}


def own_address() -> str:
    """An address of this machine that is not on loopback; no packet is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no IPv4 address beside loopback")
        return str(probe.getsockname()[0])


@pytest.fixture
async def open_port(api) -> AsyncIterator[int]:
    """A second api, on all addresses."""
    async with serve(trajectory_app(api.service), bind("0.0.0.0", 0, "RL_API_URL")) as port:
        yield port


async def ask(address: str, port: int, method: str, path: str, **options) -> httpx.Response:
    async with httpx.AsyncClient(base_url=f"http://{address}:{port}", trust_env=False, timeout=60) as client:
        return await client.request(method, path, **options)


@pytest.mark.parametrize(("method", "path"), sorted(routes() - {("HEAD", path) for _, path in routes()}))
async def test_admitted_peers(open_port, method, path) -> None:
    near = await ask("127.0.0.1", open_port, method, path)
    far = await ask(own_address(), open_port, method, path)
    assert near.status_code != 403
    if (method, path) in TRAINERS:
        assert far.status_code == 403
        assert far.json()["detail"] == (
            f"{method} {path} is for the run's trainer, which calls it on loopback; this request came from "
            f"{own_address()}: an environment has no need of it"
        )
    else:
        assert far.status_code == near.status_code


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip"])
async def test_no_header_makes_a_peer_local(open_port, header) -> None:
    answer = await ask(own_address(), open_port, "GET", "/rl/books", headers={header: "127.0.0.1"})
    assert answer.status_code == 403


@pytest.mark.parametrize("header", ["x-forwarded-for", "x-real-ip"])
async def test_no_header_makes_a_local_peer_remote(open_port, header) -> None:
    assert (await ask("127.0.0.1", open_port, "GET", "/rl/books", headers={header: "192.0.2.7"})).status_code == 200


async def test_head_is_refused_like_get(open_port) -> None:
    assert (await ask(own_address(), open_port, "HEAD", "/rl/books")).status_code == 403


async def test_nothing_is_done_for_a_refused_peer(api, open_port, build) -> None:
    await api.begin()
    await api.post("/scored_data", build.group())
    for method, path in sorted(TRAINERS):
        body = {"state": "failed", "steps_trained": 9, "training_done": True, "ids": [1], "reason": "x"}
        await ask(own_address(), open_port, method, path, json=build.trainer_registration() | body)
    assert (await api.lease("environment", "working"))["run_over"] is False
    assert (await api.books())["groups"]["queued"] == 1


def test_every_route_is_in_the_table_of_reasons() -> None:
    assert [path for _, path in sorted(routes()) if f"{path}`" not in str(route_access.__doc__)] == []
