"""How the work of a run is ended from outside, and how tasks are run beside it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Never, TypeVar

from tinker_atropos.errors import RunError

T = TypeVar("T")


class StopRequest:
    """Asks the loop to end at the next step boundary. `cause` is None when a person or the cluster asked."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.cause: RunError | None = None

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def ask(self, cause: RunError | None = None) -> None:
        if not self.asked:
            self.cause = cause
            self._asked.set()

    async def wait(self) -> None:
        await self._asked.wait()


async def unless_stopped(work: Coroutine[Any, Any, T], stop: StopRequest) -> T | None:
    """The work's result; None, and the work cancelled, when the stop comes first."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await _cancel(working, stopping)


async def beside(work: Coroutine[Any, Any, T], *companions: Coroutine[Any, Any, Never]) -> T:
    """Run the work with companions that never end by themselves; the first error of one ends all."""
    working = asyncio.ensure_future(work)
    others = [asyncio.ensure_future(companion) for companion in companions]
    try:
        done, _ = await asyncio.wait({working, *others}, return_when=asyncio.FIRST_COMPLETED)
        if working not in done:
            done.pop().result()
        return working.result()
    finally:
        await _cancel(working, *others)


async def forever() -> Never:
    """Wait until cancelled."""
    while True:
        await asyncio.sleep(3600)


async def _cancel(*tasks: "asyncio.Future[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
