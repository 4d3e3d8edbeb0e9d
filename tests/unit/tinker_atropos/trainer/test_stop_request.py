import asyncio
from typing import Never

import pytest

from tinker_atropos.errors import InternalError
from tinker_atropos.trainer.stop_request import StopRequest, beside, cancelled, forever, unless_stopped


async def fail() -> Never:
    await asyncio.sleep(0)
    raise InternalError("a companion failed")


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


async def test_the_first_stop_counts() -> None:
    stop = StopRequest()
    assert not stop.asked
    first = InternalError("first")
    stop.ask(first)
    stop.ask(InternalError("second"))
    stop.ask()
    assert stop.asked
    assert stop.cause is first


async def test_an_external_stop_hurries_an_end_that_an_error_started() -> None:
    stop = StopRequest()
    stop.ask(InternalError("first"))
    assert stop.left(10) is None
    stop.ask()
    assert stop.cause is not None
    assert 9 < (stop.left(10) or 0) <= 10
    assert stop.left(0) == 0


async def test_work_has_its_time_until_it_is_hurried() -> None:
    stop = StopRequest()
    work = asyncio.ensure_future(answer())
    assert await stop.ends(work, 0)
    endless = asyncio.ensure_future(forever())
    waiting = asyncio.ensure_future(stop.ends(endless, 0.05))
    await asyncio.sleep(0)
    stop.ask()
    assert not await asyncio.wait_for(waiting, 60)
    assert not endless.done()
    await cancelled(endless)
    assert endless.cancelled()


async def test_work_that_ends_first_has_its_result() -> None:
    assert await unless_stopped(answer(), StopRequest()) == 42


async def test_work_that_fails_first_raises() -> None:
    with pytest.raises(InternalError):
        await unless_stopped(fail(), StopRequest())


async def test_a_stop_cancels_the_work() -> None:
    stop = StopRequest()
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    running = asyncio.create_task(unless_stopped(work(), stop))
    await asyncio.sleep(0)
    stop.ask()
    assert await running is None
    assert cancelled.is_set()


async def test_companions_end_with_the_work() -> None:
    ended = asyncio.Event()

    async def companion() -> Never:
        try:
            await forever()
        finally:
            ended.set()

    assert await beside(answer(), companion()) == 42
    assert ended.is_set()


async def test_a_companions_error_ends_the_work() -> None:
    with pytest.raises(InternalError, match="a companion failed"):
        await beside(forever(), fail())
