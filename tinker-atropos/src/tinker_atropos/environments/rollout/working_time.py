"""Time in which an environment is able to make rollouts: neither a pause of the backend nor a disk that is full, as its
own code found it, counts toward any of its deadlines.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Never, TypeVar

from tinker_atropos.disk_room import FULL_SECONDS
from tinker_atropos.environments.rollout.failures import found_disk_full, innermost
from tinker_atropos.running_time import running_seconds

LOOK_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 60.0
"""What is tried again samples again, and the error of a write does not say which disk to look at."""

T = TypeVar("T")


@dataclass(slots=True)
class WorkingTime:
    """Belongs to the environment's event loop. `paused` is in seconds; `full_disks`: what those found that wait for
    room.
    """

    paused: float = 0.0
    full_disks: list[str] = field(default_factory=list)
    _limits: set[asyncio.Timeout] = field(default_factory=set)

    def now(self) -> float:
        """Like running_seconds(), which goes on during a pause."""
        return running_seconds() - self.paused

    @asynccontextmanager
    async def limited(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """Like asyncio.timeout()."""
        async with asyncio.timeout(seconds) as limit:
            self._limits.add(limit)
            try:
                yield limit
            finally:
                self._limits.discard(limit)

    async def follow(self, backend_paused: Callable[[], float]) -> Never:
        """Look, again and again, for how long it was paused: by the backend, in seconds so far, or by a full disk."""
        backend, at = 0.0, running_seconds()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            backend_before, backend = backend, backend_paused()
            before, at = at, running_seconds()
            self.was_paused(max(backend - backend_before, at - before if self.full_disks else 0.0))

    def was_paused(self, seconds: float) -> None:
        self.paused += seconds
        for limit in self._limits:
            when = limit.when()
            if when is not None and not limit.expired():
                limit.reschedule(when + seconds)

    async def with_room(self, work: Callable[[], Awaitable[T]], pause_seconds: float = FULL_SECONDS) -> T:
        """The result of `work`, which begins again, ever less often, for as long as it finds a disk full."""
        while True:
            try:
                return await work()
            except Exception as error:
                if not found_disk_full(error):
                    raise
                found = str(innermost(error))
            self.full_disks.append(found)
            try:
                await asyncio.sleep(pause_seconds)
            finally:
                self.full_disks.remove(found)
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)


WORKING_TIME: Final = WorkingTime()
"""One for the process, which is one environment."""
