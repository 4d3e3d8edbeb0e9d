"""The attendant over real HTTP, with an api that the test scripts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_atropos.environments.runner.attendant import attended
from tinker_atropos.environments.runner.board import Board
from tinker_atropos.serving import bind, json_response, serve
from tinker_atropos.settings import Settings


@dataclass
class ScriptedApi:
    """Takes leases and metrics; the first `failures` posts of metrics are answered with 500."""

    failures: int
    states: list[str] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)

    async def lease(self, request: Request) -> Response:
        self.states.append((await request.json())["state"])
        return json_response({"run_over": False, "peer": {"state": "working", "reason": None}})

    async def add_metrics(self, request: Request) -> Response:
        if self.failures:
            self.failures -= 1
            return Response(status_code=500)
        self.metrics.append((await request.json())["metrics"])
        return json_response({"seq": len(self.metrics)})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        routes = [
            Route("/rl/lease/environment", self.lease, methods=["PUT"]),
            Route("/rl/metrics", self.add_metrics, methods=["POST"]),
        ]
        async with serve(Starlette(routes=routes), bind("127.0.0.1", 0, "RL_API_URL")) as port:
            yield f"http://127.0.0.1:{port}"


async def test_the_last_metrics_and_the_last_word_are_told_again_when_they_are_lost() -> None:
    """The final evaluation is in them, and no next heartbeat would repeat it."""
    api, board = ScriptedApi(failures=2), Board(total_steps=5)
    async with api.running() as url:
        settings = Settings(api_url=url, ops_host="127.0.0.1", ops_port=0)
        async with attended(settings, board, lambda _error: None) as attendant:
            board.metrics.put({"eval/percent_correct": 0.5}, 5, "evaluation")
            await attendant.conclude("done")
    assert api.metrics[0] == {"eval/percent_correct": 0.5}
    assert api.states[-1] == "done"
    assert api.failures == 0
