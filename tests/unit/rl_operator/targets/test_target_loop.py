"""Blocking calls of async code: from any thread, and interrupted at any moment."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rl_operator.targets.target_loop import LoopThread, run_sync


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


async def test_it_runs_where_a_loop_is_running() -> None:
    assert run_sync(answer()) == 42


def test_an_error_is_the_callers() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_sync(fail())


def test_threads_do_not_wait_for_each_other() -> None:
    """Each call has its own loop: one that blocks holds up no other."""
    barrier = threading.Barrier(2, timeout=60)

    async def meet() -> int:
        return barrier.wait()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(lambda _: run_sync(meet()), range(2))) == [0, 1]


def test_no_thread_is_left() -> None:
    before = set(threading.enumerate())
    run_sync(answer())
    assert set(threading.enumerate()) <= before


def test_an_interrupted_wait_cancels_the_call_and_lets_it_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, cleaned = threading.Event(), threading.Event()

    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    _interrupt_once_begun(monkeypatch, begun)
    with pytest.raises(KeyboardInterrupt):
        run_sync(endless())
    assert cleaned.is_set()


def test_an_interrupted_wait_does_not_wait_for_a_blocked_call(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, release = threading.Event(), threading.Event()

    async def blocked() -> None:
        begun.set()
        release.wait(60)

    _interrupt_once_begun(monkeypatch, begun)
    before = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_sync(blocked())
        assert time.monotonic() - before < 30, "it waited for the call"
    finally:
        release.set()


def _interrupt_once_begun(monkeypatch: pytest.MonkeyPatch, begun: threading.Event) -> None:
    """What Ctrl-C does to a thread that waits for a future."""
    submit = asyncio.run_coroutine_threadsafe
    waits: list[object] = []

    class Interrupted:
        def __init__(self, future: object) -> None:
            self._future = future

        def result(self) -> None:
            assert begun.wait(60)
            raise KeyboardInterrupt

        def cancel(self) -> None:
            self._future.cancel()  # type: ignore[attr-defined]

    def interrupted_first(call: object, loop: object) -> object:
        future = submit(call, loop)  # type: ignore[arg-type]
        waits.append(future)
        return Interrupted(future) if len(waits) == 1 else future

    monkeypatch.setattr("rl_operator.targets.target_loop.asyncio.run_coroutine_threadsafe", interrupted_first)


def test_a_closed_loop_has_no_thread() -> None:
    before = set(threading.enumerate())
    loop = LoopThread()
    assert loop.wait(answer()) == 42
    loop.close()
    assert set(threading.enumerate()) <= before
