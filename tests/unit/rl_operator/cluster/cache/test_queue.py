"""The work queue's promises, on a real event loop with short times."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from rl_operator.cluster.cache.queue import Reconcile, WorkQueue
from rl_operator.operator_errors import ConflictError, TargetUnreachableError

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


async def until(what: str, look: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not look():
        assert asyncio.get_running_loop().time() < deadline, f"{what}: not within {seconds} s"
        await asyncio.sleep(0.005)


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
