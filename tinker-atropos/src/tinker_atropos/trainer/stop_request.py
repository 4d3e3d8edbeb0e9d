"""How the work of a run is stopped from outside, and how tasks run alongside it."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Iterator
from typing import Any, Never, TypeVar

from tinker_atropos.errors import RunError

T = TypeVar("T")


class StopRequest:
    """Asks the loop to end at the next step boundary.

    `cause` is the error that asked first, None if a user or the cluster did. A stop from outside has a deadline: from
    then on everything has to hurry, even if an error had already started the shutdown.
    """

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._hurried = asyncio.Event()
        self._hurried_at = 0.0
        self._limits: set[asyncio.Timeout] = set()
        self.cause: RunError | None = None

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def ask(self, cause: RunError | None = None) -> None:
        if not self.asked:
            self.cause = cause
            self._asked.set()
            for limit in self._limits:
                limit.reschedule(0)
        if cause is None and not self._hurried.is_set():
            self._hurried_at = time.monotonic()
            self._hurried.set()

    async def wait(self) -> None:
        await self._asked.wait()

    @contextlib.contextmanager
    def expires(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Within the block a stop is what the limit runs out at."""
        if self.asked:
            limit.reschedule(0)
        self._limits.add(limit)
        try:
            yield
        finally:
            self._limits.discard(limit)

    def left(self, seconds: float) -> float | None:
        """What is left of the seconds since a stop was requested from outside; None if none was."""
        return max(0.0, self._hurried_at + seconds - time.monotonic()) if self._hurried.is_set() else None

    async def ends(self, work: "asyncio.Future[Any]", seconds: float) -> bool:
        """Wait for the work, at most `seconds` after a stop from outside. Returns whether it has ended."""
        hurried = asyncio.ensure_future(self._hurried.wait())
        try:
            await asyncio.wait({work, hurried}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await asyncio.wait({work}, timeout=self.left(seconds))
            return work.done()
        finally:
            await cancelled(hurried)


async def unless_stopped(work: Coroutine[object, object, T], stop: StopRequest) -> T | None:
    """The work's result; None, with the work canceled, if the stop comes first.

    It runs in the caller's task: what comes next follows at once, and not after all else that the loop has to do.
    """
    limit = asyncio.timeout(None)
    try:
        async with limit:
            with stop.expires(limit):
                return await work
    except TimeoutError:
        if not limit.expired():
            raise
    return None


async def beside(work: Coroutine[object, object, T], *companions: Coroutine[object, object, Never]) -> T:
    """Run the work with companions that never end by themselves; the first error of any ends all of them."""
    working = asyncio.ensure_future(work)
    others = [asyncio.ensure_future(companion) for companion in companions]
    try:
        done, _ = await asyncio.wait({working, *others}, return_when=asyncio.FIRST_COMPLETED)
        if working not in done:
            done.pop().result()
        return working.result()
    finally:
        await cancelled(working, *others)


async def forever() -> Never:
    """Wait until canceled."""
    while True:
        await asyncio.sleep(3600)


async def cancelled(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel the tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    if not all(task.done() for task in tasks):
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # nobody waits for it any more
