"""Finding the server, waiting for a free session, and a server that comes back."""

import asyncio
import contextlib
import json
import re
import socket
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ports import free_port
from tests.unit.tinker_atropos.environments.adapters.openenv.conftest import scripted
from tests.unit.tinker_atropos.environments.adapters.openenv.guess_server import (
    GuessServer,
    error,
    observation,
    silence,
)

from tinker_atropos.environments.adapters.openenv.openenv_client import (
    CapacityReachedError,
    Observed,
    OpenEnvClient,
    OpenEnvServerError,
    RefusedActionError,
    read_answer,
    reset_frame,
    step_frame,
)
from tinker_atropos.environments.adapters.openenv.openenv_settings import OpenEnvSettings
from tinker_atropos.environments.rollout.rollouts import TransportError
from tinker_atropos.errors import ConfigError, EnvironmentLostError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_requests():
    assert json.loads(reset_frame(3)) == {"type": "reset", "data": {"seed": 3}}
    assert json.loads(step_frame({"number": 5})) == {"type": "step", "data": {"number": 5}}


@pytest.mark.parametrize(("reward", "earned"), [(None, 0.0), (1, 1.0), (True, 1.0), (False, 0.0), (-0.5, -0.5)])
def test_rewards(reward, earned):
    observed = read_answer(observation({"hint": "x"}, reward, done=True))
    assert observed == Observed(observation={"metadata": {}, "hint": "x"}, reward=reward, done=True)
    assert observed.earned == earned


def test_fields_of_later_releases_are_left_alone():
    assert read_answer('{"type":"observation","data":{"observation":{},"metadata":{"a":1}},"id":7}').earned == 0.0


@pytest.mark.parametrize(
    ("frame", "raised", "message"),
    [
        (error("CAPACITY_REACHED", "full"), CapacityReachedError, "the server has no free session: full"),
        (error("EXECUTION_ERROR", "x" * 9999), OpenEnvServerError, f"EXECUTION_ERROR: {'x' * 200}$"),
        (error("VALIDATION_ERROR", "bad"), RefusedActionError, "^bad[.]$"),
        (error("VALIDATION_ERROR", errors=[{"loc": [], "msg": "no"}, 5]), RefusedActionError, "^the action: no[.]$"),
        (
            error("VALIDATION_ERROR", errors=[{"loc": ["a", 0], "msg": "is no"}, {"loc": "b"}]),
            RefusedActionError,
            "^a.0: is no; the action: None[.]$",
        ),
    ],
)
def test_errors(frame, raised, message):
    with pytest.raises(raised, match=message):
        read_answer(frame)


@given(st.binary(max_size=60) | st.text(max_size=60) | JSON.map(json.dumps))
def test_any_frame_is_an_answer_or_an_error_of_the_transport(frame):
    with pytest.raises(TransportError, match="a frame that is not an answer"):
        read_answer(frame)


@given(st.sampled_from(["observation", "error"]), JSON)
def test_any_content_of_a_frame_is_understood_or_refused(kind, content):
    try:
        observed = read_answer(json.dumps({"type": kind, "data": content}))
    except (TransportError, RefusedActionError, CapacityReachedError, OpenEnvServerError):
        return
    assert isinstance(observed.earned, float)


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


SECONDS = 2.0


def saying(*frames):
    async def step(socket, _frame):
        for frame in frames:
            await socket.send(frame)

    return step


async def leaves(socket, _frame):
    await socket.close(1011, "out of memory")


async def vanishes(socket, _frame):
    socket.transport.abort()


async def never_ends(socket, _frame):
    """One message of endless fragments."""
    await socket.send(b"x" * 1000 for _ in iter(int, 1))


DEEP = "[" * 5000 + "]" * 5000
HOSTILE = {
    "silence": (silence, "timeout", r"did not answer within 2 s \(timeoutSeconds\)"),
    "not JSON": (saying("garbage"), "transport", "a frame that is not an answer"),
    "bytes": (saying(b"\xff\xfe\x00"), "transport", "a frame that is not an answer"),
    "a list": (saying("[1, 2]"), "transport", "a frame that is not an answer"),
    "another type": (saying('{"type": "state", "data": {}}'), "transport", "a frame that is not an answer"),
    "no observation": (saying('{"type": "observation", "data": {}}'), "transport", "data.observation: Field required"),
    "a reward in words": (
        saying('{"type": "observation", "data": {"observation": {}, "reward": "much"}}'),
        "transport",
        "a frame that is not an answer",
    ),
    "no number": (
        saying('{"type": "observation", "data": {"observation": {}, "reward": NaN}}'),
        "transport",
        "a frame that is not an answer",
    ),
    "deep": (
        saying('{"type": "observation", "data": {"observation": {"a": ' + DEEP + "}}}"),
        "transport",
        "a frame that is not an answer",
    ),
    "too large": (
        saying(observation({"hint": "x" * 200_000})),
        "transport",
        r"a frame of more than 100000 bytes \(maxFrameBytes\)",
    ),
    "endless": (never_ends, "transport", r"a frame of more than 100000 bytes \(maxFrameBytes\)"),
    "leaves": (leaves, "transport", "the session ended in mid-episode: .*out of memory"),
    "vanishes": (vanishes, "transport", "the session ended in mid-episode"),
    "execution": (saying(error("EXECUTION_ERROR", "no more")), "raised", "answered EXECUTION_ERROR: no more"),
    "session": (saying(error("SESSION_ERROR")), "raised", "answered SESSION_ERROR: it happened"),
    "factory": (saying(error("FACTORY_ERROR")), "raised", "answered FACTORY_ERROR: it happened"),
    "unknown": (saying(error("WHATEVER" * 1000)), "raised", "answered WHATEVER"),
    "asked twice": (
        saying(*[observation({"hint": "x"})] * 50),
        "transport",
        "a frame that it was not asked for",
    ),
}


@pytest.mark.parametrize(("step", "kind", "message"), HOSTILE.values(), ids=HOSTILE)
async def test_it_costs_the_rollout(server, opened, step, kind, message):
    server.on_step = step
    settings = {"timeoutSeconds": SECONDS, "maxFrameBytes": 100_000}
    async with opened(server.url, "5", settings=settings) as env:
        (failed,) = await asyncio.wait_for(env.roll_out(SEED, 1, "train"), 60)
        spoken = len(env.tokenizer.encode("5<|im_end|>", add_special_tokens=False))
    assert failed.kind == kind
    assert failed.tokens >= spoken  # lost, and counted
    assert failed.tokens % spoken == 0
    assert re.search(message, failed.message), failed.message


async def test_only_the_rollout_that_meets_it_fails(server, opened):
    lost = []

    async def first_is_lost(socket, frame):
        if not lost:
            lost.append(frame)
            socket.transport.abort()
        else:
            await socket.send(observation({"hint": "Right."}, 1.0, done=True))

    server.on_step = first_is_lost
    async with opened(server.url, "5") as env:
        outcomes = await env.roll_out(SEED, 8, "train")
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["FailedRollout", *["Rollout"] * 7]
        lost.clear()
        group, _ = await env.collect_trajectories(SEED)
    assert len(group["scores"]) == 8  # the lost one was made again


async def test_large_frames_and_floods_do_not_stay_in_memory(server, opened):
    async def ten_megabytes(socket, _frame):
        await socket.send("x" * 10_000_000)

    server.on_step = ten_megabytes
    async with opened(server.url, "5", settings={"maxSessions": 4}) as env:
        tracemalloc.start()
        try:
            outcomes = await env.roll_out(SEED, 4, "train")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert {outcome.kind for outcome in outcomes} == {"transport"}
    # The server's own are in this process, too: 4 frames, each as a text, as bytes and with its header.
    assert peak < 4 * 3 * 10_000_000 + 20_000_000


async def test_a_flood_is_not_read(server, opened):
    """While the policy thinks about an observation, 50 kB frames arrive without end."""
    sent, stuck = [], asyncio.Event()

    async def flood(socket, _frame):
        await socket.send(observation({"hint": "x"}))
        while True:
            try:
                await asyncio.wait_for(socket.send(observation({"hint": "x" * 50_000})), 2)
            except TimeoutError:
                stuck.set()
                return
            sent.append(1)

    async with opened(server.url, "5", "5") as env:
        answer = env.generate

        async def thoughtful(*arguments):
            if server.actions:
                await asyncio.wait_for(stuck.wait(), 60)
            return await answer(*arguments)

        server.on_step, env.generate = flood, thoughtful
        (failed,) = await env.roll_out(SEED, 1, "train")
    assert "a frame that it was not asked for" in failed.message
    assert len(sent) * 50_000 < 10_000_000  # what the kernel buffers


async def test_a_server_that_does_not_end_sessions_is_left(server, opened):
    async def deaf(socket, _frame):
        await socket.send(observation({"hint": "Right."}, 1.0, done=True))
        await socket.wait_closed()

    server.on_step = deaf
    async with opened(server.url, "5") as env:
        (rollout,) = await asyncio.wait_for(env.roll_out(SEED, 1, "train"), 30)
    assert rollout.score == 1.0
