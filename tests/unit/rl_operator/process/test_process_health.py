"""What probes and scrapes report."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from prometheus_client import REGISTRY
from tests.unit.rl_operator.cluster.documents import run_document, runtime_document

from rl_operator.cluster.api_server.request_guard import WatchAges
from rl_operator.cluster.cache.caches import Caches
from rl_operator.process.process_health import PortTakenError, ProcessHealth, listening, metrics, probe
from rl_operator.process.queue import Queues, WorkQueue
from rl_operator.telemetry import LEADER

PATIENT, IMPATIENT = 600.0, 0.001


class Process:
    """A queue per kind, whose reconciles do not end before `go`; `now` is the time that watches see."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.now = 0.0
        kinds = ("run", "environment", "runtime")
        self.queues = Queues(*(WorkQueue(kind=kind) for kind in kinds))
        self.caches, self.ages = Caches(), WatchAges(PATIENT, lambda: self.now)
        self.health = self.seen_with(PATIENT)

    def seen_with(self, stuck_seconds: float) -> ProcessHealth:
        return ProcessHealth(self.caches, self.queues, self.ages, stuck_seconds=stuck_seconds)

    async def work(self, _: tuple[str, str]) -> None:
        await self.go.wait()


async def test_it_is_ready_once_the_caches_are_complete() -> None:
    health = Process().health
    assert health.unready() == "the caches are not complete yet"
    health.synced = True
    assert health.unready() is None


async def test_a_reconcile_that_does_not_end() -> None:
    process = Process()
    worker = asyncio.create_task(process.queues.runs.work(process.work))
    process.queues.runs.add(("ns", "a"))
    await asyncio.sleep(0.01)
    assert process.health.trouble() is None
    assert "the reconcile of one run has been running for" in (process.seen_with(IMPATIENT).trouble() or "")
    process.go.set()
    await asyncio.sleep(0.01)
    assert process.seen_with(IMPATIENT).trouble() is None
    worker.cancel()


async def test_a_queue_that_makes_no_progress() -> None:
    process = Process()
    process.queues.runtimes.add(("", "tiny"))
    await asyncio.sleep(0.01)
    assert process.health.trouble() is None
    assert "1 runtimes wait, and no reconcile has ended for" in (process.seen_with(IMPATIENT).trouble() or "")


async def test_a_watch_without_events() -> None:
    process = Process()
    process.ages.expect(["pods"])
    for _ in range(11):
        assert process.health.trouble() is None
        process.now += 60
        process.ages.answered()
    assert process.health.trouble() == "the watch of pods has brought nothing for 660 s, though the API server answers"


async def test_a_scrape_shows_runs_by_phase_and_queues() -> None:
    process = Process()
    for number, phase in enumerate(("Running", "Running", "Failed", None)):
        document = run_document(number + 1, status={"phase": phase} if phase else {})
        document["metadata"] |= {"name": f"run-{number}", "uid": str(number)}
        process.caches.runs.put(document)
    process.queues.runs.add(("ns", "a"))
    process.health.refresh_metrics(leads=True)
    assert {
        phase: REGISTRY.get_sample_value("rl_operator_runs", {"phase": phase})
        for phase in ("Running", "Failed", "Pending", "Succeeded")
    } == {"Running": 2, "Failed": 1, "Pending": 1, "Succeeded": None}
    assert REGISTRY.get_sample_value("rl_operator_queue_depth", {"kind": "run"}) == 1
    assert REGISTRY.get_sample_value("rl_operator_leader") == 1
    process.health.refresh_metrics(leads=False)
    assert REGISTRY.get_sample_value("rl_operator_leader") == 0


async def test_a_scrape_shows_the_slots_of_each_runtime() -> None:
    process = Process()
    process.caches.runtimes.put(runtime_document(1, limits={"maxActiveRuns": 2}))
    started = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "attempt": 1}
    queued = {"phase": "Pending", "queue": {"place": 1, "active": 2, "limit": 2}}
    for number, status in enumerate((started, queued)):
        document = run_document(number + 1, status=status)
        document["metadata"] |= {"name": f"run-{number}", "uid": str(number)}
        process.caches.runs.put(document)
    process.health.refresh_metrics(leads=True)
    names = ("active_runs", "queued_runs", "active_runs_limit")
    seen = [REGISTRY.get_sample_value(f"rl_operator_{name}", {"runtime": "tiny"}) for name in names]
    assert seen == [1, 1, 2]


HOST = "127.0.0.1"


@pytest.fixture
def free_port_number() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        free: int = listener.getsockname()[1]
        return free


async def get(port: int, path: str, **options: Any) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{HOST}:{port}{path}", **options) as response:
        return response.status, await response.text()


async def test_a_probe_reports_what_is_wrong(free_port_number: int) -> None:
    wrong: list[str] = []
    look: Callable[[], str | None] = lambda: wrong[0] if wrong else None  # noqa: E731 -- a value of that type
    async with listening(HOST, free_port_number, {"/healthz": probe(look), "/readyz": probe(lambda: "not yet")}):
        assert await get(free_port_number, "/healthz") == (200, "ok")
        wrong.append("the watch of pods stands still")
        assert await get(free_port_number, "/healthz") == (503, "the watch of pods stands still")
        assert await get(free_port_number, "/readyz") == (503, "not yet")
        assert (await get(free_port_number, "/else"))[0] == 404


async def test_a_scrape_refreshes_metrics_that_are_read_on_demand(free_port_number: int) -> None:
    async with listening(HOST, free_port_number, {"/metrics": metrics(lambda: LEADER.set(1))}):
        code, text = await get(free_port_number, "/metrics", headers={"Accept-Encoding": "gzip"})
    assert code == 200
    assert "rl_operator_leader 1.0" in text
    assert "process_resident_memory_bytes" in text


async def test_port_0_disables_the_server() -> None:
    async with listening(HOST, 0, {"/healthz": probe(lambda: None)}):
        pass


async def test_a_port_in_use_is_named(free_port_number: int) -> None:
    with socket.socket() as listener:
        listener.bind((HOST, free_port_number))
        listener.listen()
        with pytest.raises(PortTakenError, match=rf"/healthz cannot be served at {HOST}:{free_port_number}: .*in use"):
            async with listening(HOST, free_port_number, {"/healthz": probe(lambda: None)}):
                pass
