"""Finding the server, waiting for a free session, and a server that comes back."""

import asyncio
import contextlib
import socket

import pytest
from tests.ports import free_port
from tests.unit.tinker_atropos.environments.adapters.openenv.conftest import scripted
from tests.unit.tinker_atropos.environments.adapters.openenv.guess_server import GuessServer

from tinker_atropos.environments.adapters.openenv.openenv_client import OpenEnvClient
from tinker_atropos.environments.adapters.openenv.openenv_settings import OpenEnvSettings
from tinker_atropos.errors import ConfigError, EnvironmentLostError

SEED = 103


@contextlib.asynccontextmanager
async def until_stopped(server):
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(server.listening())
        yield stack.aclose


async def test_a_full_server_is_tried_again(server, opened):
    server.full = 5
    async with opened(server.url, "5", "3") as env:
        outcomes = await env.roll_out(SEED, 3, "train")
    assert [outcome.score for outcome in outcomes] == [0.875] * 3
    assert server.counts["refused"] == 5


async def test_a_server_that_stays_full_is_a_timeout(server, opened):
    server.full = 10**9
    async with opened(server.url, settings={"timeoutSeconds": 0.5}) as env:
        (failed,) = await env.roll_out(SEED, 1, "train")
    assert failed.kind == "timeout"
    assert "the server has no free session: it happened; tried for 0.5 s (timeoutSeconds)" in failed.message


async def test_more_sessions_than_the_server_allows_wait_for_each_other(opened):
    server = GuessServer(max_sessions=2)
    async with server.listening(), opened(server.url, "5", "3", settings={"maxSessions": 8}) as env:
        outcomes = await env.roll_out(SEED, 8, "train")
    assert [outcome.score for outcome in outcomes] == [0.875] * 8
    assert server.most_sessions == 2


async def test_rollouts_wait_for_a_server_that_restarts(opened):
    server = GuessServer()
    async with until_stopped(server) as stop, opened(server.url, "5", "3") as env:
        await stop()
        rolling = asyncio.create_task(env.roll_out(SEED, 2, "train"))
        await asyncio.sleep(0)
        async with server.listening():
            outcomes = await asyncio.wait_for(rolling, 60)
    assert [outcome.score for outcome in outcomes] == [0.875] * 2


async def test_a_server_that_is_gone_costs_the_rollouts(opened):
    server = GuessServer()
    async with until_stopped(server) as stop, opened(server.url, settings={"timeoutSeconds": 0.5}) as env:
        await stop()
        (failed,) = await env.roll_out(SEED, 1, "train")
    assert failed.kind == "transport"
    assert f"ws://127.0.0.1:{server.port}/ws cannot be reached: " in failed.message
    assert failed.message.count("tried for 0.5 s") == 1


async def test_a_server_that_accepts_and_says_nothing_is_a_timeout():
    with socket.create_server(("127.0.0.1", 0)) as listening:  # the kernel accepts
        port = listening.getsockname()[1]
        client = OpenEnvClient(OpenEnvSettings(url=f"http://127.0.0.1:{port}", timeoutSeconds=0.5))
        with pytest.raises(TimeoutError, match=r"did not open a session within 0.5 s"):
            async with client.session("{}"):
                pass
        await client.close()


async def test_a_server_cannot_redirect_to_another_one(server, opened):
    async with GuessServer().listening() as other, opened(server.url, settings={"timeoutSeconds": 0.5}) as env:
        server.pages["/ws"] = (302, b"")
        server.headers["Location"] = f"ws://127.0.0.1:{other.port}/ws"
        (failed,) = await env.roll_out(SEED, 1, "train")
        assert failed.kind == "transport", failed
        assert "cannot follow cross-origin redirect" in failed.message
        assert not other.counts


async def test_the_setup_waits_for_a_server_that_starts(monkeypatch):
    server = GuessServer(port=free_port())
    monkeypatch.setenv("RL_OPENENV", f'{{"url": "{server.url}"}}')
    env = scripted("5", "3")
    setup = asyncio.create_task(env.setup())
    await asyncio.sleep(0)
    async with server.listening():
        await asyncio.wait_for(setup, 60)
        assert (await env.roll_out(SEED, 1, "train"))[0].score == 0.875
        await env.close()


PAGES = {
    "unhealthy": ({"/health": (503, b"")}, "was not healthy within 0.5 s: /health: Server error '503"),
    "no schema": ({"/schema": (404, b"")}, "/schema says no schemas of OpenEnv's: /schema: Client error '404"),
    "not JSON": ({"/schema": (200, b"<html>")}, "/schema says no schemas of OpenEnv's: OpenEnvSchema: as a whole"),
    "no action": ({"/schema": (200, b"{}")}, "OpenEnvSchema: action: Field required"),
    "endless": ({"/schema": (200, b"x" * 3_000_000)}, r"/schema has more than 1048576 bytes \(maxFrameBytes\)"),
}


@pytest.mark.parametrize(("pages", "message"), PAGES.values(), ids=PAGES)
async def test_a_server_that_is_no_openenv_server_ends_the_setup(server, monkeypatch, pages, message):
    server.pages = pages
    monkeypatch.setenv("RL_OPENENV", f'{{"url": "{server.url}"}}')
    env = scripted()
    env.start_seconds = 0.5
    with pytest.raises(EnvironmentLostError, match=message):
        await env.setup()
    await env.close()


async def test_nobody_listens(monkeypatch):
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("RL_OPENENV", f'{{"url": "{url}"}}')
    env = scripted()
    env.start_seconds = 0.5
    with pytest.raises(EnvironmentLostError, match=rf"{url} was not healthy within 0.5 s: /health: .*RL_OPENENV.url"):
        await env.setup()
    await env.close()


async def test_without_the_variable_the_setup_says_so(monkeypatch):
    monkeypatch.delenv("RL_OPENENV", raising=False)
    with pytest.raises(ConfigError, match="RL_OPENENV is not set"):
        await scripted().setup()
