"""A pause of the backend counts toward no deadline."""

import asyncio
import time

import pytest

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
