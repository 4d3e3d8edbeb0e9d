"""A pause of the backend counts toward no deadline."""

import asyncio
import errno
import time

import pytest
from tenacity import AsyncRetrying, stop_after_attempt

from tinker_atropos.environments.rollout.working_time import WorkingTime


async def test_a_limit_is_put_off_by_a_pause() -> None:
    working = WorkingTime()
    async with working.limited(0.02):
        working.was_paused(3600)
        await asyncio.sleep(0.05)
    with pytest.raises(TimeoutError):
        async with working.limited(0.02):
            await asyncio.sleep(60)


def test_it_stands_still_during_a_pause() -> None:
    working = WorkingTime()
    before = working.now()
    working.was_paused(3600)
    assert working.now() < before < time.monotonic()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_what_finds_a_disk_full_is_tried_again_until_there_is_room(number) -> None:
    working, seen = WorkingTime(), []

    async def work():
        seen.append([*working.full_disks])
        if len(seen) < 4:
            raise OSError(number, "No room", "/data/answers")
        return "done"

    async def retried():
        return await AsyncRetrying(stop=stop_after_attempt(2))(work)

    asking = asyncio.create_task(working.with_room(retried, pause_seconds=0.01))
    while not working.full_disks:
        await asyncio.sleep(0)
    assert working.full_disks == [f"[Errno {number}] No room: '/data/answers'"]
    assert await asking == "done"
    assert working.full_disks == []
    assert seen == [[]] * 4, "nothing waits while it is tried"


async def test_other_errors_are_not_waited_out() -> None:
    async def work():
        raise OSError(errno.EACCES, "no")

    with pytest.raises(PermissionError):
        await WorkingTime().with_room(work)
