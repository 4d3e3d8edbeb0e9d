"""Real trainers' ops ports on loopback addresses, asked over HTTP."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from rl_operator.metrics.trainer import TrainerPoller, pod_ops_url
from rl_operator.status.observation import PodObservation

POD = PodObservation(
    name="sorting-12345-1",
    namespace="ns",
    uid="pod-1",
    run_uid="run-1",
    run_name="sorting",
    attempt=1,
    created=datetime(2026, 1, 1, tzinfo=UTC),
    phase="Running",
    reason=None,
    message="",
    containers=(),
    result=None,
    address="127.0.0.1",
    deleting=False,
    held=True,
    scheduled=True,
    disruption=None,
)


class Trainer:
    """Answers `/status` with whatever is in `answer`."""

    def __init__(self) -> None:
        self.answer: Any = {"phase": "training", "step": 1, "totalSteps": 4}
        self.asked = 0
        self.port = 0

    async def status(self, _: web.Request) -> web.Response:
        self.asked += 1
        return web.json_response(self.answer) if self.answer is not None else web.Response(text="<html>", status=200)


@asynccontextmanager
async def serving() -> AsyncIterator[Trainer]:
    trainer = Trainer()
    app = web.Application()
    app.router.add_get("/status", trainer.status)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    trainer.port = runner.addresses[0][1]
    try:
        yield trainer
    finally:
        await runner.cleanup()


@asynccontextmanager
async def polling(trainer: Trainer, pods: list[PodObservation]) -> AsyncIterator[tuple[TrainerPoller, list[str]]]:
    changed: list[str] = []
    poller = TrainerPoller(
        lambda: pods,
        lambda pod: changed.append(pod.uid),
        interval_seconds=0.02,
        ops_url=lambda pod: f"http://{pod.address}:{trainer.port}" if pod.address else None,
    )
    task = asyncio.create_task(poller.run())
    try:
        yield poller, changed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until_asked(trainer: Trainer, times: int) -> None:
    target = trainer.asked + times
    async with asyncio.timeout(5):
        while trainer.asked < target:
            await asyncio.sleep(0.005)


async def test_only_news_is_told() -> None:
    async with serving() as trainer, polling(trainer, [POD]) as (poller, changed):
        await until_asked(trainer, 4)
        assert changed == ["pod-1"]
        trainer.answer = {"phase": "training", "step": 2, "totalSteps": 4}
        await until_asked(trainer, 2)
        assert changed == ["pod-1", "pod-1"]
        status = poller.status_of(POD)
        assert status is not None
        assert (status.step, status.total_steps) == (2, 4)


async def test_a_trainer_that_talks_nonsense_or_not_at_all_is_passed_over() -> None:
    silent = dataclasses.replace(POD, uid="pod-2", address="127.255.255.1")
    async with serving() as trainer, polling(trainer, [silent, POD]) as (poller, changed):
        trainer.answer = None
        await until_asked(trainer, 2)
        trainer.answer = {"step": "many"}
        await until_asked(trainer, 2)
        assert changed == []
        trainer.answer = {"step": 3}
        await until_asked(trainer, 2)
        assert changed == ["pod-1"]
        assert poller.status_of(silent) is None


async def test_pods_that_are_over_or_have_no_address_are_not_asked() -> None:
    over = dataclasses.replace(POD, phase="Succeeded")
    unscheduled = dataclasses.replace(POD, uid="pod-3", address=None)
    pods = [over, unscheduled]
    async with serving() as trainer, polling(trainer, pods):
        pods.append(dataclasses.replace(POD, uid="pod-4"))
        await until_asked(trainer, 2)
        assert trainer.asked == 2


async def test_what_is_over_is_forgotten() -> None:
    pods = [POD]
    async with serving() as trainer, polling(trainer, pods) as (poller, _):
        await until_asked(trainer, 2)
        pods[:] = [dataclasses.replace(POD, uid="pod-5")]
        await until_asked(trainer, 3)
        assert poller.status_of(POD) is None


ADDRESSES = {"10.0.0.7": "http://10.0.0.7:8002", "fd00::7": "http://[fd00::7]:8002", None: None}


@pytest.mark.parametrize(("address", "url"), ADDRESSES.items())
def test_the_ops_port_of_a_pod(address: str | None, url: str | None) -> None:
    assert pod_ops_url(dataclasses.replace(POD, address=address)) == url


async def test_only_runs_pods_are_asked() -> None:
    """The pod of an environment that runs apart has no trainer in it."""
    environment = dataclasses.replace(POD, uid="pod-2", component="environment")
    async with serving() as trainer, polling(trainer, [environment, POD]) as (poller, changed):
        async with asyncio.timeout(10):
            while trainer.asked < 3:
                await asyncio.sleep(0.01)
        assert (changed, poller.status_of(environment)) == (["pod-1"], None)
