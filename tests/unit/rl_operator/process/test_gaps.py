"""One check for all simultaneous lists of kopf, and none is lost."""

import asyncio

from rl_operator.operator_errors import TargetUnreachableError
from rl_operator.process import kopf
from rl_operator.process.kopf import Gaps


class Looks:
    """Counts the checks; the first ones fail."""

    def __init__(self, failing: int = 0) -> None:
        self.count = 0
        self._failing = failing

    async def __call__(self) -> None:
        self.count += 1
        if self.count <= self._failing:
            raise TargetUnreachableError("the API server is away")


async def until(looks: Looks, count: int) -> None:
    async with asyncio.timeout(kopf.GATHER_SECONDS + kopf.RETRY_SECONDS + 5):
        while looks.count < count:
            await asyncio.sleep(0.02)


async def closing(looks: Looks, count: int, notes: int = 1) -> None:
    gap = Gaps(looks)
    task = asyncio.create_task(gap.run())
    for _ in range(notes):
        gap.note()
    await until(looks, count)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_several_lists_at_once_are_one_check() -> None:
    looks = Looks()
    await closing(looks, 1, notes=3)
    assert looks.count == 1


async def test_a_failed_check_is_repeated() -> None:
    looks = Looks(failing=1)
    await closing(looks, 2)
    assert looks.count == 2


async def test_a_list_that_starts_during_a_check_is_checked_as_well() -> None:
    looks = Looks()

    async def look() -> None:
        await looks()
        if looks.count == 1:
            gap.note()

    gap = Gaps(look)
    task = asyncio.create_task(gap.run())
    gap.note()
    await until(looks, 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
