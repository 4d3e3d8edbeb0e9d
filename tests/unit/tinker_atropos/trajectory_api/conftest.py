"""A trajectory API on a real loopback port, inside the test's event loop, with a clock that the test controls."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.ports import free_port

from tinker_atropos.serving import bind, serve
from tinker_atropos.trajectory_api.api_routes import trajectory_app
from tinker_atropos.trajectory_api.messages.bodies import MAX_BODY_BYTES
from tinker_atropos.trajectory_api.messages.records import Books, PostedGroups, ReceivedGroup
from tinker_atropos.trajectory_api.messages.requests import TrainerRegistration
from tinker_atropos.trajectory_api.service.trajectory_service import TrajectoryService
from tinker_atropos.trajectory_api.store.arrivals import Stored, add_deliveries
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


def balanced(books: dict[str, Books]) -> bool:
    """Every received group is accounted for, in groups and in rollouts."""
    return all(
        entries["received"]
        == sum(entries[state] for state in ("buffered", "queued", "delivered", "trained"))
        + sum(entries["dropped"].values())
        for entries in (books["groups"], books["rollouts"])
    )


def delivery(*numbers: int, size: int = 2, content: bytes | None = None, **changes: Any) -> PostedGroups:
    """One POST of groups identified by `number`."""
    return PostedGroups(
        tuple(
            replace(
                ReceivedGroup(
                    env_id=0,
                    rollouts=size,
                    largest_token=9,
                    content=content or json.dumps(number).encode(),
                    gzipped=False,
                    key=str(number),
                ),
                **changes,
            )
            for number in numbers
        )
    )


def post(journal: Journal, *deliveries: PostedGroups, now: float = 0.0, evict: bool = False) -> list[Stored | None]:
    """Store groups below HTTP; the states of each delivery's groups."""
    return journal.write(add_deliveries, deliveries, now=now, max_bytes=journal.max_bytes, evict_replay=evict)


def trainer_registration(**changes: Any) -> dict[str, Any]:
    return {
        "wandb_group": "group",
        "wandb_project": "project",
        "batch_size": 4,
        "max_token_len": 128,
        "checkpoint_dir": "/checkpoints",
        "save_checkpoint_interval": 5,
        "starting_step": 0,
        "num_steps": 10,
    } | changes


def env_registration(**changes: Any) -> dict[str, Any]:
    return {
        "max_token_length": 128,
        "desired_name": "sort",
        "weight": 1.0,
        "group_size": 2,
        "min_batch_allocation": None,
    } | changes


def group(size: int = 2, *, first_token: int = 7, env_id: int | None = 0, **changes: Any) -> dict[str, Any]:
    """A group of `size` sequences; `first_token` identifies the group."""
    return {
        "tokens": [[first_token, 5, 6]] * size,
        "masks": [[-100, 5, 6]] * size,
        "scores": [float(index) for index in range(size)],
        "inference_logprobs": [[1.0, -0.5, -0.25]] * size,
        "env_id": env_id,
    } | changes


COMMAND = [sys.executable, "-c", "from tinker_atropos.cli import main; main()", "api", "--data"]


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


def eventually(what: str, condition: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if found := condition():
                return found
        time.sleep(0.02)
    pytest.fail(f"not within {seconds} s: {what}")


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
            [*COMMAND, str(folder)], env={**os.environ, **addresses}, stderr=subprocess.PIPE, text=True
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


@dataclass
class Builders:
    """The request bodies of the protocol, valid unless a test changes them, and other shared helpers."""

    trainer_registration: Callable[..., dict[str, Any]] = field(default=trainer_registration)
    env_registration: Callable[..., dict[str, Any]] = field(default=env_registration)
    group: Callable[..., dict[str, Any]] = field(default=group)
    delivery: Callable[..., PostedGroups] = field(default=delivery)
    post: Callable[..., list[Stored | None]] = field(default=post)
    balanced: Callable[[dict[str, Books]], bool] = field(default=balanced)
    free_port: Callable[[], int] = field(default=free_port)
    eventually: Callable[..., Any] = field(default=eventually)
    api_command: tuple[str, ...] = tuple(COMMAND)

    def registration(self, **changes: Any) -> TrainerRegistration:
        return TrainerRegistration(**trainer_registration(**changes))


@pytest.fixture
def build() -> Builders:
    return Builders()
