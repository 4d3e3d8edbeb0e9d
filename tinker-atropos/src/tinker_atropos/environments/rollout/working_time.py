"""Time in which the trainer is able to sample: a pause of the backend counts toward no deadline of an environment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from tinker_atropos.running_time import running_seconds


@dataclass(slots=True)
class WorkingTime:
    """Belongs to the environment's event loop. `paused` is in seconds."""

    paused: float = 0.0
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

    def was_paused(self, seconds: float) -> None:
        self.paused += seconds
        for limit in self._limits:
            when = limit.when()
            if when is not None and not limit.expired():
                limit.reschedule(when + seconds)


WORKING_TIME: Final = WorkingTime()
"""One for the process, which is one environment."""
