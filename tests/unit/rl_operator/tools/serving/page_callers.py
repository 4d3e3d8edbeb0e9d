"""Callers of the page without an API server: each has a target of their own."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from starlette.types import ASGIApp
from tests.unit.rl_operator.targets.fakes import MemoryTarget, run_manifest
from tests.unit.rl_operator.tools.small_toolset import TOOLS

from rl_operator.operator_errors import OperatorError, UnauthenticatedError
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.serving.call_pool import Calls
from rl_operator.tools.serving.gateway import build_app
from rl_operator.ui.serving.page_gate import page_at

ADDRESS = "http://127.0.0.1:8080"
OWN = {"Origin": ADDRESS}
HTML = {"Accept": "text/html"}
ANN, BEN = "ann-token", "ben-token"


class MadeSessions:
    """Those in `targets` are known; `open` counts who is being served."""

    def __init__(self, **targets: MemoryTarget) -> None:
        self.targets = {f"{name}-token": target for name, target in targets.items()}
        self.failure: OperatorError | None = None
        self.trusts = True
        self.open = 0
        self.asked = 0

    def knows(self, token: str) -> bool:
        return self.trusts and token in self.targets

    def has_met(self, token: str) -> bool:
        return token in self.targets

    async def asked_again(self, times: int) -> None:
        """Until it was asked so often from now on."""
        until = self.asked + times
        while self.asked < until:
            await asyncio.sleep(0.001)

    @contextmanager
    def context(self, token: str) -> Iterator[CallContext]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        if token not in self.targets:
            raise UnauthenticatedError("the API server does not know the token, or it has expired")
        self.open += 1
        try:
            yield CallContext(self.targets[token], "default")  # type: ignore[arg-type]  # of the protocol, what is used
        finally:
            self.open -= 1


def target_of(caller: str, *runs: str) -> MemoryTarget:
    target = MemoryTarget(*(_run(name) for name in runs))
    target.caller = caller
    return target


def _run(name: str) -> dict[str, Any]:
    run = run_manifest(name)
    run["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return run


def two_callers() -> MadeSessions:
    return MadeSessions(ann=target_of("ann", "anns-run"), ben=target_of("ben", "bens-run"))


def gateway_of(sessions: MadeSessions, *, read_only: bool = False, pinned: bool = False) -> ASGIApp:
    tools = [tool for tool in TOOLS if tool.reads_only or not read_only]
    calls, hosts = Calls(), ["RL.example.com"]
    page = page_at(sessions, calls, hosts, pinned=pinned, may_change=not read_only)
    return build_app(tools, sessions, calls, hosts=hosts, pinned=pinned, page=page)


def browser_at(app: ASGIApp, address: str = ADDRESS) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=address)
