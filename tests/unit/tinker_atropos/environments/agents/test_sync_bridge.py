"""Synchronous calls under a bridge: others go on, contexts and cancellations pass through."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest

from tinker_atropos.environments.agents.sync_bridge import Bridged, run_blocking

SECONDS = 60
who: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.fixture
def threads():
    with ThreadPoolExecutor(4) as threads:
        yield threads


async def test_others_go_on_during_a_synchronous_call(threads):
    """Two graders wait for each other: neither would ever end if one held up the event loop."""
    meeting = threading.Barrier(2, timeout=SECONDS)

    async def grade(name: str) -> str:
        await asyncio.sleep(0)
        run_blocking(threads, meeting.wait)
        await asyncio.sleep(0)
        return name

    assert await asyncio.gather(Bridged(grade("a")), Bridged(grade("b"))) == ["a", "b"]


async def test_what_it_raises_and_returns(threads):
    def fail() -> None:
        raise KeyError("no")

    async def grade() -> str:
        try:
            run_blocking(threads, fail)
        except KeyError as error:
            return f"told {error}"
        return "nothing"

    assert await Bridged(grade()) == "told 'no'"

    async def fails() -> None:
        run_blocking(threads, fail)

    with pytest.raises(KeyError):
        await Bridged(fails())


async def test_its_context_is_the_callers(threads):
    async def grade() -> tuple[str, str]:
        before = who.get()
        run_blocking(threads, lambda: None)
        who.set("grader")
        return before, who.get()

    who.set("caller")
    assert await Bridged(grade()) == ("caller", "grader")
    assert who.get() == "grader"


async def test_a_cancellation_reaches_the_coroutine(threads):
    begun, release, ends = asyncio.Event(), threading.Event(), []

    async def grade() -> None:
        begun.set()
        try:
            run_blocking(threads, release.wait, SECONDS)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    task = asyncio.ensure_future(_awaited(Bridged(grade())))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    assert ends == ["cancelled"]


async def _awaited(bridged: Bridged[None]) -> None:
    await bridged


def test_without_a_bridge_it_is_a_plain_call(threads):
    assert run_blocking(threads, threading.get_ident) == threading.get_ident()
