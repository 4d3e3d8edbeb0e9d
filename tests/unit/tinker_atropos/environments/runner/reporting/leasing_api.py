"""The trajectory API as a heartbeat knows it: it takes leases and metrics."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tinker_atropos.environments.runner.reporting.heartbeat import Heartbeat, heartbeat_running
from tinker_atropos.environments.runner.reporting.shared_state import SharedState
from tinker_atropos.serving import bind, json_response, serve
from tinker_atropos.settings import Settings


@dataclass
class LeasingApi:
    """The first `failures` posts of metrics are answered with 500. More `routes` may be served beside."""

    failures: int = 0
    routes: list[Route] = field(default_factory=list)
    leases: list[dict[str, Any]] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    trainer_reason: str | None = None

    @property
    def states(self) -> list[str]:
        return [lease["state"] for lease in self.leases]

    async def lease(self, request: Request) -> Response:
        self.leases.append(await request.json())
        return json_response({"run_over": False, "peer": {"state": "working", "reason": self.trainer_reason}})

    async def add_metrics(self, request: Request) -> Response:
        if self.failures:
            self.failures -= 1
            return Response(status_code=500)
        self.reports.append(await request.json())
        return json_response({"seq": len(self.reports)})

    @asynccontextmanager
    async def told_by(self, shared: SharedState, index: int | None = None) -> AsyncIterator[Heartbeat]:
        """A heartbeat of an environment, which has its trainer at the same address."""
        own = [
            Route("/rl/lease/environment", self.lease, methods=["PUT"]),
            Route("/rl/metrics", self.add_metrics, methods=["POST"]),
        ]
        async with serve(Starlette(routes=[*own, *self.routes]), bind("127.0.0.1", 0, "RL_API_URL")) as port:
            url = f"http://127.0.0.1:{port}"
            settings = Settings(
                api_url=url, inference_url=url, ops_host="127.0.0.1", ops_port=0, environment_index=index
            )
            async with heartbeat_running(settings, shared, lambda _error: None) as heartbeat:
                yield heartbeat
