"""A trajectory API on a real loopback port, inside the test's event loop, with a clock that the test controls."""

import contextlib
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.ports import free_port
from tests.unit.tinker_atropos.trajectory_api.api_bodies import (
    API_COMMAND,
    balanced,
    env_registration,
    eventually,
    trainer_registration,
)

from tinker_atropos.serving import bind, serve
from tinker_atropos.trajectory_api.api_routes import trajectory_app
from tinker_atropos.trajectory_api.messages.bodies import MAX_BODY_BYTES
from tinker_atropos.trajectory_api.messages.requests import Books
from tinker_atropos.trajectory_api.service.trajectory_service import TrajectoryService
from tinker_atropos.trajectory_api.store.journal import Journal

MAX_BYTES = 2**28
HOLD_SECONDS = 0.3


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Api:
    http: httpx.AsyncClient
    service: TrajectoryService
    clock: Clock
    url: str
    folder: Path

    async def get(self, path: str, body: Any = None) -> Any:
        answer = await self.http.request("GET", path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any) -> Any:
        answer = await self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def books(self) -> dict[str, Books]:
        """The totals in groups and rollouts, which must balance."""
        books = await self.get("/rl/books")
        assert balanced(books)
        return {unit: books[unit] for unit in ("groups", "rollouts")}

    async def lease(self, role: str, state: str, reason: str | None = None) -> Any:
        answer = await self.http.put(f"/rl/lease/{role}", json={"state": state, "reason": reason, "ttl_seconds": 15})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def begin(self, **registration: Any) -> int:
        """A trainer registers and asks for its first batch; an environment registers. Returns its env_id."""
        await self.post("/register", trainer_registration(**registration))
        assert await self.get("/batch") == {"batch": None}
        return int((await self.post("/register-env", env_registration()))["env_id"])


StartProcess = Callable[..., AbstractContextManager["ApiProcess"]]
StartApi = Callable[..., AbstractAsyncContextManager[Api]]


@pytest.fixture
def start_api(tmp_path: Path) -> StartApi:
    """Start an api on the test's folder; starting again on the same folder is a restart."""

    @asynccontextmanager
    async def start(
        clock: Clock | None = None,
        max_bytes: int = MAX_BYTES,
        hold_seconds: float = HOLD_SECONDS,
        max_body_bytes: int = MAX_BODY_BYTES,
        environment_grace: float | None = None,
    ) -> AsyncIterator[Api]:
        clock = clock or Clock()
        journal = Journal(tmp_path / "api", max_bytes)
        service = TrajectoryService(journal, clock, hold_seconds, environment_grace)
        try:
            app = trajectory_app(service, max_body_bytes)
            async with serve(app, bind("127.0.0.1", 0, "RL_API_URL")) as port:
                url = f"http://127.0.0.1:{port}"
                async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http:
                    yield Api(http, service, clock, url, tmp_path)
        finally:
            service.close()
            journal.close()

    return start


@pytest.fixture
async def api(start_api: StartApi) -> AsyncIterator[Api]:
    async with start_api() as started:
        yield started


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path, MAX_BYTES)
    yield journal
    journal.close()


@dataclass
class ApiProcess:
    process: subprocess.Popen[str]
    http: httpx.Client
    ops: httpx.Client

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.ops.get("/status").json()
        return status

    def stop(self) -> tuple[int, float]:
        """Exit code, and seconds from SIGTERM to the exit."""
        started = time.monotonic()
        self.process.terminate()
        return self.process.wait(60), time.monotonic() - started


def client(port: int) -> httpx.Client:
    """Each request on its own connection, as BaseEnv makes them: a killed worker takes kept ones with it."""
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60, limits=limits)


@contextlib.contextmanager
def run_api_process(folder: Path, port: int | None = None) -> Iterator[ApiProcess]:
    port, ops_port = port or free_port(), free_port()
    addresses = {
        "RL_API_URL": f"http://127.0.0.1:{port}",
        "RL_OPS_HOST": "127.0.0.1",
        "RL_OPS_PORT": str(ops_port),
    }
    with (
        subprocess.Popen(
            [*API_COMMAND, str(folder)], env={**os.environ, **addresses}, stderr=subprocess.PIPE, text=True
        ) as p,
        client(port) as http,
        client(ops_port) as ops,
    ):
        try:
            eventually("the api is ready", lambda: p.poll() is not None or ops.get("/healthz").status_code == 200)
            yield ApiProcess(p, http, ops)
        finally:
            p.kill()


@pytest.fixture
def api_process(process: None) -> StartProcess:
    return run_api_process
