"""The status of the queue as atroposlib asks for it and as we do, on the same server; and how often it is asked."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from atroposlib.envs.base import BaseEnv
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tinker_atropos.environments.runner.reporting.queue_status import StatusPolls, kept_connection, respect_room
from tinker_atropos.serving import bind, serve

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
async def api() -> AsyncIterator[Api]:
    api = Api()
    app = Starlette(routes=[Route("/status-env", api.show_status)])
    async with serve(app, bind("127.0.0.1", 0, "test")) as port:
        api.url = f"http://127.0.0.1:{port}"
        yield api


class Asking:
    """Of an environment, what its question and the answer concern."""

    get_status = BaseEnv.get_status

    def __init__(self, api: Api, limit: int) -> None:
        self.config = SimpleNamespace(rollout_server_url=api.url, max_num_workers=limit, max_num_workers_per_node=8)
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
async def test_it_asks_and_learns_what_atroposlib_does(api: Api, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BaseEnv.get_status.retry, "wait", lambda _state: 0)
    env = Asking(api, limit)
    await env.get_status()
    expected = env.learned()
    async with kept_connection(env):
        for _ in range(3):  # of which the first is answered with an error
            env.status_dict, env.max_num_workers = {}, 0
            await env.get_status()
            assert env.learned() == expected
    assert api.asked == [{"env_id": 5}] * 5
    assert len(set(api.ports[1:])) == 1
    assert env.get_status.__func__ is BaseEnv.get_status


async def test_an_environment_that_asks_in_its_own_way_goes_on_to(api: Api) -> None:
    class Own(Asking):
        async def get_status(self) -> None:
            self.status_dict = {"own": True}

    env = Own(api, 3)
    async with kept_connection(env):
        await env.get_status()
    assert (env.status_dict, api.asked) == ({"own": True}, [])


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
