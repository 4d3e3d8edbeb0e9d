"""Calls in threads: how many, how they end, and what happens to abandoned ones."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.tools.small_toolset import POLL_SECONDS, TOOLS

from rl_operator.operator_errors import BusyError, TargetUnreachableError
from rl_operator.targets.local_target import LocalTarget
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.serving.call_pool import CallLimits, Calls, OpenContext
from rl_operator.tools.toolset import Outcome, dispatch

TOOL = {tool.name: tool for tool in TOOLS}
WAIT = {"run_id": "a", "wait_seconds": 200}


@pytest.fixture
def open_context(tmp_path: Path) -> OpenContext:
    context = CallContext(LocalTarget.open(tmp_path, print, asked=True), "default")
    return lambda: contextlib.nullcontext(context)


def call(calls: Calls, tool: str, open_context: OpenContext, arguments: Mapping[str, Any] = WAIT) -> Awaitable[Outcome]:
    waits = TOOL[tool].waits(arguments)
    return calls.call(lambda context: dispatch(TOOL[tool], context, arguments), open_context, waits=waits)


async def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, f"not within 20 s: {what}"
        await asyncio.sleep(POLL_SECONDS)


def waiting_threads() -> int:
    return sum(thread.name == "tool-call" for thread in threading.enumerate())


async def test_waits_beyond_the_limit_are_answered_at_once(open_context: OpenContext) -> None:
    calls = Calls(CallLimits(at_once=6, waiting=4, in_line=2))
    waiting = [asyncio.ensure_future(call(calls, "rl_check_status", open_context)) for _ in range(4)]
    await until("four wait", lambda: waiting_threads() == 4)
    late = await call(calls, "rl_check_status", open_context)
    assert late.answer == {"run_id": "a", "status": "running", "given_up": False}
    assert not any(task.done() for task in waiting)
    calls.end()
    assert [outcome.answer["given_up"] for outcome in await asyncio.gather(*waiting)] == [True] * 4
    assert (await call(calls, "rl_check_status", open_context)).answer["given_up"]


async def test_what_goes_on_is_told_of_the_end() -> None:
    calls, told = Calls(), list[str]()
    calls.when_ending(lambda: told.append("streams"))
    assert told == []
    calls.end()
    assert told == ["streams"]


async def test_calls_beyond_the_queue_are_refused(open_context: OpenContext) -> None:
    calls, gate = Calls(CallLimits(at_once=2, waiting=2, in_line=3)), threading.Event()
    working = [asyncio.ensure_future(calls.in_thread(gate.wait)) for _ in range(5)]
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="3 calls are already waiting"):
        await calls.in_thread(gate.wait)
    refused = await call(calls, "rl_health_check", open_context, {})
    assert (refused.code, refused.answer["retryable"]) == ("busy", True)
    gate.set()
    assert await asyncio.gather(*working) == [True] * 5


async def test_an_abandoned_call_ends_and_frees_its_slot(open_context: OpenContext) -> None:
    calls = Calls(CallLimits(at_once=1, waiting=1, in_line=1))
    task = asyncio.ensure_future(call(calls, "rl_check_status", open_context))
    await until("it waits", lambda: waiting_threads() == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    after = await asyncio.wait_for(call(calls, "rl_check_status", open_context, {"run_id": "b"}), 20)
    assert after == Outcome({"run_id": "b", "status": "running", "given_up": False})
    await until("the thread has ended", lambda: waiting_threads() == 0)


async def test_a_failure_to_open_the_context_is_an_answer() -> None:
    @contextlib.contextmanager
    def no_context():
        raise TargetUnreachableError("the API server does not answer")
        yield

    outcome = await call(Calls(), "rl_health_check", no_context, {})
    assert outcome.answer == {"error": "the API server does not answer", "code": "unreachable", "retryable": True}
