"""Trainers' ops ports on loopback, as good or bad as a test needs them, and a poller."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from aiohttp import web
from tests.unit.rl_operator.patience import until
from tests.unit.rl_operator.status.builders import working_pod

from rl_operator.metrics.trainer_poller import TrainerPoller
from rl_operator.status.observed.observation import PodObservation

POD = working_pod(podIP="127.0.0.1")
UP = {"phase": "training", "step": 1, "totalSteps": 40, "runUid": "u-1", "attempt": 1}


class Trainer:
    """Answers `/status` with `answer` (a function's result, or JSON), and `/history` with `points`."""

    def __init__(self) -> None:
        self.answer: object = UP
        self.points: Any = []
        self.asked: list[float] = []
        self.tokens: set[tuple[str, str | None]] = set()
        self.asked_at: dict[str, list[float]] = defaultdict(list)
        self.read = 0
        self.port = 0
        self.delay = 0.0

    async def status(self, request: web.Request) -> web.StreamResponse:
        self.tokens.add((request.path, request.headers.get("X-RL-Ops-Token")))
        self.asked.append(asyncio.get_running_loop().time())
        self.asked_at[request.host.partition(":")[0]].append(self.asked[-1])
        await asyncio.sleep(self.delay)
        if self.answer is endless:
            return await endless(request)
        if not callable(self.answer):
            return web.json_response(self.answer)
        answered: web.Response = self.answer()
        return answered

    async def history(self, request: web.Request) -> web.Response:
        self.tokens.add((request.path, request.headers.get("X-RL-Ops-Token")))
        self.read += 1
        return web.json_response({"points": self.points})


async def endless(request: web.Request) -> web.StreamResponse:
    """An answer that does not end."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 65_536)


@asynccontextmanager
async def serving(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Trainer]:
    trainer = Trainer()
    app = web.Application()
    app.router.add_get("/status", trainer.status)
    app.router.add_get("/history", trainer.history)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    trainer.port = runner.addresses[0][1]
    try:
        yield trainer
    finally:
        await runner.cleanup()


@asynccontextmanager
async def polling(
    port: int, pods: list[PodObservation], *, interval_seconds: float = 0.02
) -> AsyncIterator[tuple[TrainerPoller, list[str]]]:
    """The poller, and the uids of the pods that it reported."""
    changed: list[str] = []
    poller = TrainerPoller(
        lambda: pods,
        lambda pod: changed.append(pod.uid),
        interval_seconds=interval_seconds,
        ops_url=lambda pod: f"http://{pod.address}:{port}" if pod.address else None,
    )
    task = asyncio.create_task(poller.run())
    try:
        yield poller, changed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until_asked(trainer: Trainer, times: int) -> None:
    target = len(trainer.asked) + times
    await until(f"asked {times} times more", lambda: len(trainer.asked) >= target)


def pod_at(uid: str, **changes: Any) -> PodObservation:
    return replace(POD, uid=uid, **changes)
