"""Registering, asking and sending over real HTTP, with an api that starts late, fails, or refuses."""

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from atroposlib.envs.base import BaseEnv
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tinker_atropos.environments.runner.reporting.api_requests import (
    EnvironmentRegistration,
    GroupSender,
    StatusPolls,
    kept_connection,
    post_until_answered,
    respect_room,
)
from tinker_atropos.environments.runner.reporting.counters import HOPELESS_AFTER, Counters
from tinker_atropos.errors import EnvironmentLostError, InternalError
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
    answers: list[Response] = [PlainTextResponse("away", 503), JSONResponse({"status": "success"})]
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


ROOMS = {
    "as upstream: no room is named": ({}, 8),
    "unlimited": ({"room": None}, 8),
    "for more groups than workers": ({"room": 1000}, 8),
    "for three groups": ({"room": 12}, 3),
    "for a part of one: it would never be used otherwise": ({"room": 3}, 1),
    "none": ({"room": 0}, 0),
}


@pytest.mark.parametrize(("status", "workers"), ROOMS.values(), ids=ROOMS)
def test_no_more_groups_are_started_than_the_run_still_wants(status: dict[str, Any], workers: int) -> None:
    env = SimpleNamespace(status_dict=status, max_num_workers=8, config=SimpleNamespace(group_size=4))
    respect_room(env)
    assert env.max_num_workers == workers


class Api:
    """Answers each question with `status`, and keeps what was asked, and over which connections."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {"current_step": 3, "queue_size": 2, "env_weight": 0.25, "room": 8}
        self.asked: list[Any] = []
        self.ports: list[int] = []
        self.url = ""

    async def show_status(self, request: Request) -> Response:
        self.asked.append(await request.json())
        self.ports.append(request.client.port if request.client else 0)
        return JSONResponse(self.status, 503 if len(self.asked) == 2 else 200)


@pytest.fixture
async def queue_api() -> AsyncIterator[Api]:
    queue_api = Api()
    app = Starlette(routes=[Route("/status-env", queue_api.show_status)])
    async with serve(app, bind("127.0.0.1", 0, "test")) as port:
        queue_api.url = f"http://127.0.0.1:{port}"
        yield queue_api


class Asking:
    """Of an environment, what its question and the answer concern."""

    get_status = BaseEnv.get_status

    def __init__(self, queue_api: Api, limit: int) -> None:
        self.config = SimpleNamespace(
            rollout_server_url=queue_api.url, max_num_workers=limit, max_num_workers_per_node=8
        )
        self.env_id = 5
        self.server = SimpleNamespace(servers=["policy", "judge"], update_weight=self.take_weight)
        self.max_num_workers = 0
        self.status_dict: dict[str, Any] = {}
        self.weights: list[float] = []

    async def take_weight(self, weight: float) -> None:
        self.weights.append(weight)

    def learned(self) -> Any:
        return self.status_dict, self.max_num_workers, self.weights[-1]


@pytest.mark.parametrize("limit", [-1, 3])
async def test_it_asks_and_learns_what_atroposlib_does(queue_api, limit, monkeypatch):
    monkeypatch.setattr(BaseEnv.get_status.retry, "wait", lambda _state: 0)
    env = Asking(queue_api, limit)
    await env.get_status()
    expected = env.learned()
    async with kept_connection(env):
        for _ in range(3):  # of which the first is answered with an error
            env.status_dict, env.max_num_workers = {}, 0
            await env.get_status()
            assert env.learned() == expected
    assert queue_api.asked == [{"env_id": 5}] * 5
    assert len(set(queue_api.ports[1:])) == 1
    assert env.get_status.__func__ is BaseEnv.get_status


async def test_an_environment_that_asks_in_its_own_way_goes_on_to(queue_api: Api) -> None:
    class Own(Asking):
        async def get_status(self) -> None:
            self.status_dict = {"own": True}

    env = Own(queue_api, 3)
    async with kept_connection(env):
        await env.get_status()
    assert (env.status_dict, queue_api.asked) == ({"own": True}, [])


def test_it_asks_less_often_while_the_answer_stays_the_same() -> None:
    now = 100.0
    polls = StatusPolls(clock=lambda: now)

    def pause_after(seconds: float, answer: dict[str, Any]) -> float:
        nonlocal now
        now += seconds
        return polls.pause(answer)

    full, drained = {"queue_size": 4}, {"queue_size": 3}
    assert [pause_after(each, full) for each in (0, 1, 1, 4, 100)] == pytest.approx([0.05, 0.05, 0.1, 0.3, 0.5])
    assert [pause_after(each, drained) for each in (0.5, 2)] == pytest.approx([0.05, 0.1])
    drained["queue_size"] = 2  # in place, as an environment's own get_status may
    assert pause_after(0.5, drained) == pytest.approx(0.05)


SENDING = SimpleNamespace(max_num_workers=8, env_id=3)
RECEIVED = (200, {"status": "received"})
CONNECTION_LOST = (0, {})


@dataclass
class ScriptedQueue:
    """Answers with the script's answers, then always with the last one. Keeps the requests."""

    script: list[tuple[int, dict[str, Any]]]
    paths: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    connections: list[asyncio.Task[None] | None] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError):  # the client is gone
            while True:
                await self._answer_one(reader, writer)
        writer.close()
        await writer.wait_closed()

    async def until_all_have_left(self) -> None:
        await asyncio.gather(*filter(None, self.connections))

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        body = await reader.readexactly(int(headers["content-length"]))
        self.paths.append(request.split()[1])
        self.keys.append(headers["idempotency-key"])
        self.bodies.append(json.loads(gzip.decompress(body) if "content-encoding" in headers else body))
        status, answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if not status:
            raise asyncio.IncompleteReadError(b"", None)
        content = json.dumps(answer).encode()
        writer.write(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%b" % (status, len(content), content))
        await writer.drain()


@contextlib.asynccontextmanager
async def sender_to(*script):
    api, counters, given_up = ScriptedQueue(list(script)), Counters(), list[EnvironmentLostError]()
    async with await asyncio.start_server(api.answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        sender = GroupSender(f"http://127.0.0.1:{port}", counters, given_up.append)
        async with contextlib.aclosing(sender._client):
            yield api, sender, counters, given_up
        await api.until_all_have_left()


async def test_a_group_is_sent_with_its_environment_and_its_own_key() -> None:
    async with sender_to(RECEIVED) as (api, sender, counters, _):
        await sender.send(SENDING, {"tokens": np.array([[1, 2]])})
        await sender.send(SENDING, {"tokens": [[1] * 2000]})
    assert api.paths == ["/scored_data"] * 2
    stamp = {"env_id": 3, "group_overrides": {"environment": 0}}
    assert api.bodies == [{"tokens": [[1, 2]], **stamp}, {"tokens": [[1] * 2000], **stamp}]
    assert len(set(api.keys)) == 2
    assert (counters.kept, counters.accepted, counters.refused) == (2, 2, 0)


@pytest.mark.parametrize("trouble", [(503, {"detail": "full"}), (500, {}), CONNECTION_LOST])
async def test_a_repeat_carries_the_same_key(trouble) -> None:
    async with sender_to(trouble, RECEIVED) as (api, sender, counters, _):
        await sender.send(SENDING, [{"tokens": [[1]]}, {"tokens": [[2]]}])
    assert api.paths == ["/scored_data_list"] * 2
    assert (len(set(api.keys)), api.bodies[0]) == (1, api.bodies[1])
    assert counters.accepted == 2


async def test_a_full_disk_is_waited_for_longer_than_an_api_that_is_away() -> None:
    answers = [507, 507, 507, 200]
    transport = httpx.MockTransport(lambda _: httpx.Response(answers.pop(0)))
    async with httpx.AsyncClient(base_url="http://api", transport=transport) as client:
        answer = await post_until_answered(client, "/scored_data", b"{}", {}, retry_seconds=0)
    assert (answer.status_code, answers) == (200, [])


async def test_a_refused_group_is_counted_and_not_sent_again() -> None:
    async with sender_to((422, {"detail": "scores has 1 entries"})) as (api, sender, counters, _):
        await sender.send(SENDING, {"scores": [1.0]})
    assert (len(api.keys), counters.accepted, counters.refused) == (1, 0, 1)
    assert counters.last_failure == '422: {"detail": "scores has 1 entries"}'


async def test_the_good_groups_of_a_list_count_as_accepted() -> None:
    answer = {"status": "received", "groups_processed": 2, "refused": ["tokens[0] is empty"]}
    async with sender_to((200, answer)) as (_, sender, counters, _given_up):
        await sender.send(SENDING, [{}, {}, {}])
    assert (counters.kept, counters.accepted, counters.refused, counters.last_failure) == (
        3,
        2,
        1,
        "tokens[0] is empty",
    )


async def test_a_value_that_is_not_json_is_refused_here() -> None:
    async with sender_to(RECEIVED) as (api, sender, counters, _):
        await sender.send(SENDING, {"tokens": [[1]], "images": object()})
    assert (api.keys, counters.refused) == ([], 1)
    assert "cannot be written as JSON: Type is not JSON serializable: object" in str(counters.last_failure)


async def test_an_environment_with_only_refused_groups_gives_up() -> None:
    async with sender_to((422, {"detail": "no"})) as (_, sender, _counters, given_up):
        for _ in range(HOPELESS_AFTER):
            assert not given_up
            await sender.send(SENDING, {})
        assert str(given_up[0]) == 'the trajectory API refuses every group (422: {"detail": "no"})'
