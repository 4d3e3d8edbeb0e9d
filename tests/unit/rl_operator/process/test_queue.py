"""The work queue's promises, on a real event loop with short times; and which event adds which keys to which queue."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.rl_operator.cluster.documents import (
    environment_document,
    pod_document,
    run_document,
    runtime_document,
)
from tests.unit.rl_operator.patience import until

from rl_operator.cluster.cache.caches import Caches
from rl_operator.operator_errors import ConflictError, TargetUnreachableError
from rl_operator.process.queue import Queues, Reconcile, Routes, WorkQueue

A, B = ("ns", "a"), ("ns", "b")


@asynccontextmanager
async def working(work: Reconcile, *, workers: int = 3, deadline_seconds: float = 5.0) -> AsyncIterator[WorkQueue]:
    queue = WorkQueue(deadline_seconds=deadline_seconds)
    tasks = [asyncio.create_task(queue.work(work)) for _ in range(workers)]
    try:
        yield queue
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_key_added_many_times_runs_once() -> None:
    runs: Counter[tuple[str, str]] = Counter()

    async def work(key: tuple[str, str]) -> None:
        runs[key] += 1

    async with working(work) as queue:
        for _ in range(10):
            queue.add(A)
        queue.add(B)
        await until("both ran", lambda: len(runs) == 2)
    assert runs == {A: 1, B: 1}


async def test_a_key_never_runs_twice_at_once_and_reruns_if_added_meanwhile() -> None:
    running, most, runs = 0, 0, 0
    go = asyncio.Event()

    async def work(_: tuple[str, str]) -> None:
        nonlocal running, most, runs
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1
        runs += 1

    async with working(work) as queue:
        queue.add(A)
        await until("it runs", lambda: running == 1)
        for _ in range(5):
            queue.add(A)
        assert queue.longest_running_seconds() > 0
        go.set()
        await until("it ran again", lambda: runs == 2)
        await asyncio.sleep(0.05)
    assert (most, runs) == (1, 2)
    assert queue.longest_running_seconds() == pytest.approx(0, abs=0.01)


async def test_different_keys_run_side_by_side_up_to_the_number_of_workers() -> None:
    running, most = 0, 0
    go = asyncio.Event()

    async def work(_: tuple[str, str]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    async with working(work, workers=2) as queue:
        for number in range(5):
            queue.add(("ns", str(number)))
        await until("two run", lambda: running == 2)
        go.set()
        await until("all ran", lambda: running == 0)
    assert most == 2


async def test_a_request_schedules_the_next_reconcile_and_the_earliest_wins() -> None:
    moments: list[float] = []
    loop = asyncio.get_running_loop()

    async def work(_: tuple[str, str]) -> float | None:
        moments.append(loop.time())
        return 0.05 if len(moments) == 1 else None

    async with working(work) as queue:
        queue.add_after(A, 30)
        queue.add_after(A, 0.01)
        queue.add_after(A, 20)
        await until("two looks", lambda: len(moments) == 2)
    assert 0.04 < moments[1] - moments[0] < 5


FAILURES = {
    "error": (TargetUnreachableError("no answer"), logging.WARNING, "no answer"),
    "conflict": (ConflictError("behind"), logging.DEBUG, "behind"),
    "defect": (KeyError("oops"), logging.ERROR, "failed unexpectedly"),
}


@pytest.mark.parametrize(("error", "level", "said"), FAILURES.values(), ids=FAILURES)
async def test_failures_are_logged_and_retried_and_affect_no_other_key(
    error: Exception, level: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    runs: Counter[tuple[str, str]] = Counter()

    async def work(key: tuple[str, str]) -> None:
        runs[key] += 1
        if key == A and runs[A] < 3:
            raise error

    caplog.set_level(logging.DEBUG, "rl_operator")
    async with working(work, workers=1) as queue:
        queue.add(A)
        queue.add(B)
        await until("it was tried three times", lambda: runs[A] == 3)
    assert runs[B] == 1
    records = [record for record in caplog.records if said in record.getMessage()]
    assert [record.levelno for record in records] == [level, level]
    assert records[0].getMessage().startswith("run ns/a: ")


async def test_hanging_work_is_ended_at_its_deadline(caplog: pytest.LogCaptureFixture) -> None:
    runs = 0

    async def work(_: tuple[str, str]) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            await asyncio.Event().wait()

    async with working(work, deadline_seconds=0.05) as queue:
        queue.add(A)
        await until("it was tried again", lambda: runs == 2)
    assert "took longer than" in caplog.text


async def test_a_standby_skips_keys_until_it_leads() -> None:
    runs: Counter[tuple[str, str]] = Counter()

    async def work(key: tuple[str, str]) -> None:
        runs[key] += 1

    queue = WorkQueue(standing_by=True)
    worker = asyncio.create_task(queue.work(work))
    queue.add(A)
    queue.add_after(A, 0.01)
    await asyncio.sleep(0.05)
    assert queue.depth == 0
    queue.begin()
    queue.add(B)
    await until("B ran", lambda: runs[B] == 1)
    worker.cancel()
    assert runs == {B: 1}


async def test_it_reports_how_many_keys_wait_and_for_how_long_nothing_ended() -> None:
    go = asyncio.Event()

    async def work(_: tuple[str, str]) -> None:
        await go.wait()

    async with working(work, workers=1) as queue:
        queue.add(A)
        await until("it runs", lambda: queue.depth == 0)
        await asyncio.sleep(0.05)
        assert queue.standstill_seconds() == queue.oldest_waiting_seconds() == 0
        queue.add(B)
        await asyncio.sleep(0.05)
        assert queue.depth == 1
        assert 0.04 < queue.standstill_seconds() < queue.oldest_waiting_seconds() < queue.longest_running_seconds()
        go.set()
        await until("both ran", lambda: queue.depth == 0)
        assert queue.standstill_seconds() == 0


async def test_urgent_keys_come_first_within_their_head_start(monkeypatch: pytest.MonkeyPatch) -> None:
    order = []

    async def work(key: tuple[str, str]) -> None:
        order.append(key[1])

    queue = WorkQueue(urgent=lambda key: key[1].startswith("new"))
    for moment, name in ((0.0, "old-1"), (0.1, "old-2"), (0.2, "new-1"), (9.9, "new-2"), (10.2, "new-3")):
        with monkeypatch.context() as patch:
            patch.setattr(time, "monotonic", lambda moment=moment: moment)
            queue.add(("ns", name))
    worker = asyncio.create_task(queue.work(work))
    await until("all ran", lambda: len(order) == 5)
    worker.cancel()
    assert order == ["new-1", "new-2", "old-1", "old-2", "new-3"]


# --- routes -----------------------------------------------------------------------------------------------------------
STARTED = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "attempt": 1}
OVER = {**STARTED, "phase": "Failed"}
QUEUED = {"phase": "Pending", "queue": {"place": 1, "active": 1, "limit": 1}}


class Routed:
    """Caches of runs, and the queues that their changes add to. `limit`: how many may be active at their runtime."""

    def __init__(self, *runs: dict[str, Any], limit: int | None = None) -> None:
        self.caches = Caches()
        self.queues = Queues(*(WorkQueue(kind=kind) for kind in ("run", "environment", "runtime")))
        self.routes = Routes(self.caches, self.queues)
        if limit is not None:
            self.caches.runtimes.put(runtime_document(1, limits={"maxActiveRuns": limit}))
        for run in runs:
            self.caches.runs.put(run)

    @property
    def added(self) -> set[str]:
        return {f"{queue.kind} {name}" for queue in self.queues.all for _, name in queue._waiting}


def named(name: str, version: int = 1, **fields: Any) -> dict[str, Any]:
    document = run_document(version, **fields)
    document["metadata"] |= {"name": name, "uid": name}
    return document


def event(kind: str | None, document: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": document}


def far(run: dict[str, Any]) -> dict[str, Any]:
    run["metadata"]["namespace"] = "team-b"
    return run


def run_event(kind: str | None, document: dict[str, Any]) -> Callable[[Routes], None]:
    return lambda routes: routes.take("rltrainingruns", event(kind, document))


CHILD = named("child", startFrom={"run": "sorting"})
OF_A_RUNTIME = (named("waits"), named("elsewhere", runtime="default"), named("begun", status=STARTED))
OF_AN_ENVIRONMENT = (
    named("waits", environment="own/maze"),
    named("bundled", environment="maze"),
    named("begun", environment="own/maze", status=STARTED),
    far(named("far", environment="own/maze")),
)
GONE = {"rlruntimes": ("", "tiny"), "rlenvironments": ("team-a", "own"), "rltrainingruns": ("team-a", "sorting")}
ROUTES: dict[str, tuple[Routed, Callable[[Routes], None], set[str]]] = {
    "a run": (Routed(), run_event(None, run_document(1)), {"run sorting"}),
    "no news": (Routed(run_document(2)), run_event("MODIFIED", run_document(2)), set()),
    "late news": (Routed(run_document(2)), run_event("MODIFIED", run_document(1)), set()),
    "a deleted run, for its pods": (Routed(run_document(2)), run_event("DELETED", run_document(3)), {"run sorting"}),
    "a run that works": (Routed(CHILD), run_event("MODIFIED", run_document(4, STARTED)), {"run sorting"}),
    "a run that is over, and those that start from it": (
        Routed(
            CHILD,
            named("other", startFrom={"run": "maze"}),
            named("begun", startFrom={"run": "sorting"}, status=STARTED),
        ),
        run_event("MODIFIED", run_document(4, OVER)),
        {"run sorting", "run child"},
    ),
    "a run that appears": (Routed(CHILD), run_event("ADDED", run_document(3)), {"run sorting", "run child"}),
    "a run that vanishes": (
        Routed(CHILD, run_document(2, STARTED)),
        run_event("DELETED", run_document(3)),
        {"run sorting", "run child"},
    ),
    "a runtime, and the runs that wait for it": (
        Routed(*OF_A_RUNTIME),
        lambda routes: routes.take("rlruntimes", event("ADDED", runtime_document(5))),
        {"run waits", "runtime tiny"},
    ),
    "an environment, and the runs that name it": (
        Routed(*OF_AN_ENVIRONMENT),
        lambda routes: routes.take("rlenvironments", event("ADDED", environment_document(5))),
        {"run waits", "environment maze"},
    ),
    "another namespace's labels": (
        Routed(*OF_A_RUNTIME),
        lambda routes: routes.namespace_changed(("", "team-b")),
        set(),
    ),
    "a namespace's labels": (
        Routed(*OF_A_RUNTIME),
        lambda routes: routes.namespace_changed(("", "team-a")),
        {"run elsewhere", "run waits"},
    ),
    "what only a list shows": (
        Routed(CHILD),
        lambda routes: [routes.changed(*gone) for gone in GONE.items()],
        {"run sorting", "run child", "environment own", "runtime tiny"},
    ),
    "the end of an active run, and the head of the queue": (
        Routed(
            named("active", 2, status=STARTED),
            named("first", 3, status=QUEUED),
            named("next", 4, status=QUEUED),
            limit=1,
        ),
        run_event("DELETED", named("active", 5, status=STARTED)),
        {"run active", "run first"},
    ),
    "a raised limit, and all that wait": (
        Routed(named("new", 2, status=QUEUED), named("resumed", 3, status={**STARTED, **QUEUED}), limit=0),
        lambda routes: routes.take("rlruntimes", event("MODIFIED", runtime_document(4, limits={"maxActiveRuns": 1}))),
        {"run new", "run resumed", "runtime tiny"},
    ),
    "finished runs that expire": (
        Routed(
            named("expires", status={**OVER, "completionTime": "2026-01-01T00:00:00Z"}, ttlSecondsAfterFinished=60),
            named("stays", status={**OVER, "completionTime": "2026-01-01T00:00:00Z"}),
        ),
        lambda routes: routes.add_expiring(),
        {"run expires"},
    ),
}


@pytest.mark.parametrize("name", ROUTES)
async def test_an_event_adds_what_it_concerns(name: str) -> None:
    routed, happens, added = ROUTES[name]
    happens(routed.routes)
    assert routed.added == added


async def test_the_catalog_of_an_image_adds_all_runtimes_of_that_image() -> None:
    routed = Routed()
    specs = {
        "one": {"image": "i"},
        "two": {"image": "other", "environmentImage": "i"},
        "three": {"image": "i", "environmentImage": "j"},
        "unreadable": {"image": "i", "nonsense": 1},
    }
    for version, (name, spec) in enumerate(specs.items(), 1):
        routed.caches.runtimes.put(runtime_document(version, name, **spec))
    routed.routes.catalog_changed("i")
    assert routed.added == {"runtime one", "runtime two"}


async def test_a_resync_adds_everything_but_finished_runs() -> None:
    routed = Routed(named("running", status=STARTED), named("over", status=OVER))
    routed.caches.pods.put(pod_document(3))
    routed.caches.runtimes.put(runtime_document(4))
    routed.caches.environments.put(environment_document(5))
    routed.routes.add_all(0.0)
    timers = [{name for _, name in queue._timers} for queue in routed.queues.all]
    assert timers == [{"running", "sorting"}, {"maze"}, {"tiny"}]
