"""The ops port; and that a worker killed with SIGKILL at any moment still has every acknowledged group, in order."""

import asyncio
import itertools
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from tests.ports import free_port
from tests.unit.tinker_atropos.trajectory_api import api_bodies as build

from tinker_atropos.serving import bind, ops_app, serve
from tinker_atropos.trajectory_api.api_worker import ServiceCollector, ops_status

SENDERS, CHECKPOINT_STEPS = 5, 3
SAMPLING_SECONDS = 0.05
DEADLINE_SECONDS = 120.0
BACK_SECONDS = 2.0
SLACK = 5
"""The tests' machine is shared; alone, the worker is back in half a second."""


@dataclass
class Client:
    """Clients that retry, like BaseEnv and the trainer, until they get an answer. One connection per request."""

    http: httpx.AsyncClient
    interrupted: int = 0

    async def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        while True:
            try:
                answer = await self.http.request(method, path, json=body, headers=headers)
            except httpx.TransportError:
                self.interrupted += 1
            else:
                if answer.status_code < 500:
                    assert answer.status_code == 200, answer.text
                    return answer.json()
            await asyncio.sleep(0.02)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60, limits=limits) as http:
        yield Client(http)


@dataclass
class Environments:
    """SENDERS environments, each of which sends a group when its last one is acknowledged. Odd ones send no key."""

    client: Client
    rng: random.Random
    acknowledged: int = 0

    async def send(self, sender: int, enough: asyncio.Event) -> None:
        for number in itertools.count():
            if enough.is_set():
                return
            group = build.group(first_token=10_000 * sender + number, images="x" * self.rng.randrange(20_000))
            headers = {"idempotency-key": f"{sender}/{number}"} if sender % 2 == 0 else None
            await self.client.ask("POST", "/scored_data", group, headers)
            self.acknowledged += 1
            await asyncio.sleep(self.rng.random() * SAMPLING_SECONDS)


@dataclass
class Trainer:
    """Takes batches by step, drops some groups, reports progress, and sometimes goes back to its checkpoint."""

    client: Client
    rng: random.Random
    batches: dict[int, list[int]] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    checkpoint: int = 0

    async def train(self, all_sent: asyncio.Event) -> None:
        step = 0
        while True:
            over = all_sent.is_set()
            batch = await self.client.ask("GET", f"/batch?wait=0.3&step={step}")
            if batch["batch"] is None:
                if over:
                    return
                continue
            self.take(step, batch)
            if self.rng.random() < 0.2:
                await self.drop(step, batch["ids"][0])
                continue
            step += 1
            await self.report(step)
            if self.rng.random() < 0.2:
                step = self.checkpoint

    def take(self, step: int, batch: dict[str, Any]) -> None:
        tokens = [group["tokens"][0][0] for group in batch["batch"]]
        assert self.batches.setdefault(step, batch["ids"]) == batch["ids"], "a batch is given again as it was"
        new = [group_id for group_id in batch["ids"] if group_id not in self.tokens]
        assert all(group_id > max(self.tokens, default=0) for group_id in new), "first in, first out"
        for group_id, token in zip(batch["ids"], tokens, strict=True):
            assert self.tokens.setdefault(group_id, token) == token

    async def drop(self, step: int, group_id: int) -> None:
        await self.client.ask("POST", "/rl/drop", {"ids": [group_id], "reason": "stale"})
        self.dropped.add(group_id)
        del self.batches[step]

    async def report(self, steps: int) -> None:
        self.checkpoint = max(self.checkpoint, steps - steps % CHECKPOINT_STEPS)
        await self.client.ask("POST", "/rl/progress", {"steps_trained": steps, "checkpoint_step": self.checkpoint})


@asynccontextmanager
async def traffic(url: str, seed: int) -> AsyncIterator[None]:
    """Environments and a trainer at work while the block runs. Then everything is trained and checked."""
    rng = random.Random(seed)
    async with connected(url) as client:
        environments, trainer = Environments(client, rng), Trainer(client, rng)
        await client.ask("POST", "/register", build.trainer_registration(num_steps=100_000))
        enough, all_sent = asyncio.Event(), asyncio.Event()
        async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as training:
            training.create_task(trainer.train(all_sent))
            async with asyncio.TaskGroup() as sending:
                for sender in range(SENDERS):
                    sending.create_task(environments.send(sender, enough))
                yield
                enough.set()
            all_sent.set()
        assert client.interrupted, "no kill hit a request"
        await check(client, trainer, environments.acknowledged)


async def check(client: Client, trainer: Trainer, sent: int) -> None:
    """Nothing lost, nothing twice, each sender's groups in order, and the totals agree."""
    books = await client.ask("GET", "/rl/books")
    assert build.balanced(books)
    groups = books["groups"]
    assert (groups["received"], groups["refused"]) == (sent, {})
    assert groups["dropped"].get("stale", 0) == len(trainer.dropped)
    order = [trainer.tokens[group_id] for step in sorted(trainer.batches) for group_id in trainer.batches[step]]
    assert len(set(order)) == len(order), "no group was trained twice"
    assert len(order) <= groups["trained"] + groups["delivered"]
    assert groups["queued"] < 2, "everything was taken"
    for sender in range(SENDERS):
        own = [token for _, token in sorted(trainer.tokens.items()) if token // 10_000 == sender]
        assert own == list(range(10_000 * sender, own[-1] + 1)), "all of them, in the order of their acknowledgment"


async def worker_pid(ops: str, other_than: int = 0) -> int:
    async with httpx.AsyncClient(base_url=ops, trust_env=False, timeout=60) as http, asyncio.timeout(60):
        while True:
            try:
                pid = int((await http.get("/status")).json()["worker"]["pid"])
            except httpx.TransportError:
                pid = other_than
            if pid != other_than:
                return pid
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.nightly("tinker-atropos/src/tinker_atropos/trajectory_api"))]
)
async def test_a_worker_killed_at_random_moments_loses_and_repeats_nothing(api_process, tmp_path: Path, seed) -> None:
    rng, away = random.Random(seed), list[float]()
    with api_process(tmp_path) as api:
        ops = str(api.ops.base_url)
        async with traffic(str(api.http.base_url), seed):
            pid = await worker_pid(ops)
            for _ in range(10):
                await asyncio.sleep(rng.random() * 0.3)  # the moment of the kill, not a wait for something
                killed_at = time.monotonic()
                os.kill(pid, signal.SIGKILL)
                pid = await worker_pid(ops, other_than=pid)
                away.append(time.monotonic() - killed_at)
    assert max(away) < BACK_SECONDS * SLACK, "seconds until the worker was back"


async def test_the_whole_api_continues_in_a_new_process_after_a_kill(api_process, tmp_path: Path) -> None:
    rng, port = random.Random(7), free_port()
    with ExitStack() as processes:
        api = processes.enter_context(api_process(tmp_path, port))
        async with traffic(str(api.http.base_url), 7):
            for _ in range(3):
                worker = Path(f"/proc/{await worker_pid(str(api.ops.base_url))}")
                await asyncio.sleep(rng.random())  # the moment of the kill
                api.process.kill()
                await asyncio.to_thread(api.process.wait, 10)
                await asyncio.to_thread(build.eventually, "its worker ends", partial(is_gone, worker))
                api = await asyncio.to_thread(processes.enter_context, api_process(tmp_path, port))


def is_gone(path: Path) -> bool:
    return not path.exists()


@pytest.fixture
async def ops(api):
    registry = CollectorRegistry()
    registry.register(ServiceCollector(api.service, 2))
    app = ops_app(api.service.unready, lambda: ops_status(api.service, 2), registry=registry)
    async with (
        serve(app, bind("127.0.0.1", 0, "RL_OPS_PORT")) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client,
    ):
        yield client


async def test_status_before_anything(ops) -> None:
    status = (await ops.get("/status")).json()
    assert (status["registered"], status["started"], status["step"], status["totalSteps"]) == (False, False, 0, None)
    assert status["leases"]["trainer"] == {"state": "absent", "reason": None}


async def test_status_of_a_run(api, ops) -> None:
    await api.begin(num_steps=10)
    await api.post("/scored_data_list", [build.group()] * 3 + [build.group(size=1)])
    await api.get("/batch")
    await api.http.post("/scored_data", json=build.group(scores=[]))
    await api.lease("trainer", "failed", "boom")
    status = (await ops.get("/status")).json()
    assert status["queue"] == {
        "buffered": {"groups": 1, "rollouts": 1},
        "queued": {"groups": 1, "rollouts": 2},
        "delivered": {"groups": 2, "rollouts": 4},
    }
    assert status["environments"] == [{"envId": 0, "name": "sort_0", "live": True}]
    assert status["books"] == await api.books()
    assert status["books"]["groups"]["refused"] == {"scores": 1}
    assert status["keptBatches"] == {"fromStep": 0, "batches": 0}
    assert (status["heldPosts"], status["oldestQueuedSeconds"] < 60) == (0, True)
    assert status["runOver"] == "the trainer is failed: boom"
    assert status["journal"]["error"] is None
    api.clock.now += 15.1
    assert (await ops.get("/status")).json()["environments"][0]["live"] is False


async def test_metrics(api, ops) -> None:
    await api.begin(batch_size=2)
    for number in range(4):
        await api.post("/scored_data", build.group(first_token=number))
    await api.post("/scored_data", build.group(first_token=0))
    await api.http.post("/scored_data", json=build.group(scores=[]))
    await api.get("/batch?step=0")
    await api.get("/batch?step=1")
    await api.post("/rl/drop", {"ids": [2], "reason": "stale"})
    await api.post("/rl/progress", {"steps_trained": 1})
    text = (await ops.get("/metrics")).text
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    expected = {
        ("rl_api_groups", "buffered"): 0,
        ("rl_api_groups", "queued"): 2,
        ("rl_api_groups", "delivered"): 0,
        ("rl_api_groups_received_total",): 4,
        ("rl_api_groups_trained",): 1,
        ("rl_api_groups_duplicates_total",): 1,
        ("rl_api_groups_dropped_total", "stale"): 1,
        ("rl_api_groups_refused_total", "scores"): 1,
        ("rl_api_groups_replay_evicted_total",): 0,
        ("rl_api_rollouts", "queued"): 4,
        ("rl_api_rollouts_received_total",): 8,
        ("rl_api_kept_batches",): 1,
        ("rl_api_held_posts",): 0,
        ("rl_api_step",): 1,
        ("rl_api_worker_restarts_total",): 2,
        ("rl_api_journal_failing",): 0,
    }
    assert {name: samples[name] for name in expected} == expected
    assert samples[("rl_api_journal_bytes",)] > 0
    assert 0 < samples[("rl_api_oldest_queued_seconds",)] < 60


async def test_readiness_follows_the_journal(api, ops) -> None:
    assert (await ops.get("/healthz")).status_code == 200
    await api.begin()
    api.service.journal._writer.execute("PRAGMA max_page_count = 1")
    assert (await api.http.post("/scored_data", json=build.group(images="x" * 100_000))).status_code == 507
    health = await ops.get("/healthz")
    assert (health.status_code, "no room is left in" in health.text) == (503, True)
    assert "rl_api_journal_failing 1.0" in (await ops.get("/metrics")).text
