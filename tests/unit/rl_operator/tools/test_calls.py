"""Calls in threads: how many, how they end, and what happens to those that nobody waits for."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.rl_operator.tools.small_toolset import POLL_SECONDS, TOOLS

from rl_operator.backends.local import LocalBackEnd
from rl_operator.errors import BackEndUnreachableError, BusyError
from rl_operator.tools.calls import Calls, DeskOf, Limits
from rl_operator.tools.desk import Desk
from rl_operator.tools.dispatch import Outcome

TOOL = {tool.name: tool for tool in TOOLS}
WAIT = {"run_id": "a", "wait_seconds": 200}


@pytest.fixture
def desk_of(tmp_path: Path) -> DeskOf:
    desk = Desk(LocalBackEnd.open(tmp_path, print, asked=True), "default")
    return lambda: contextlib.nullcontext(desk)


async def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, f"not within 20 s: {what}"
        await asyncio.sleep(POLL_SECONDS)


def waiting_threads() -> int:
    return sum(thread.name == "tool-call" for thread in threading.enumerate())


async def test_those_who_come_when_enough_wait_are_answered_at_once(desk_of: DeskOf) -> None:
    calls = Calls(Limits(at_once=6, waiting=4, in_line=2))
    waiting = [asyncio.ensure_future(calls.call(TOOL["rl_check_status"], desk_of, WAIT)) for _ in range(4)]
    await until("four wait", lambda: waiting_threads() == 4)
    late = await calls.call(TOOL["rl_check_status"], desk_of, WAIT)
    assert late.answer == {"run_id": "a", "status": "running", "given_up": False}
    assert not any(task.done() for task in waiting)
    calls.end()
    assert [outcome.answer["given_up"] for outcome in await asyncio.gather(*waiting)] == [True] * 4
    assert (await calls.call(TOOL["rl_check_status"], desk_of, WAIT)).answer["given_up"]


async def test_a_line_that_is_too_long_is_refused(desk_of: DeskOf) -> None:
    calls, gate = Calls(Limits(at_once=2, waiting=2, in_line=3)), threading.Event()
    working = [asyncio.ensure_future(calls.in_thread(gate.wait)) for _ in range(5)]
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="3 calls stand in line already"):
        await calls.in_thread(gate.wait)
    refused = await calls.call(TOOL["rl_health_check"], desk_of, {})
    assert (refused.code, refused.answer["retryable"]) == ("busy", True)
    gate.set()
    assert await asyncio.gather(*working) == [True] * 5


async def test_a_call_that_nobody_waits_for_ends_and_frees_its_place(desk_of: DeskOf) -> None:
    calls = Calls(Limits(at_once=1, waiting=1, in_line=1))
    task = asyncio.ensure_future(calls.call(TOOL["rl_check_status"], desk_of, WAIT))
    await until("it waits", lambda: waiting_threads() == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    after = await asyncio.wait_for(calls.call(TOOL["rl_check_status"], desk_of, {"run_id": "b"}), 20)
    assert after == Outcome({"run_id": "b", "status": "running", "given_up": False})
    await until("the thread has ended", lambda: waiting_threads() == 0)


async def test_a_desk_that_cannot_be_had_is_an_answer() -> None:
    @contextlib.contextmanager
    def no_desk():
        raise BackEndUnreachableError("the API server does not answer")
        yield

    outcome = await Calls().call(TOOL["rl_health_check"], no_desk, {})
    assert outcome.answer == {"error": "the API server does not answer", "code": "unreachable", "retryable": True}
