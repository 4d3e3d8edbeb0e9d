"""Whose turn it is where there are fewer sandboxes than rollouts, and how long rollouts wait for theirs."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final

from tinker_atropos.environments.agents.toolbox import ReservedSandbox, Toolbox

logger = logging.getLogger(__name__)

WAIT_METRIC: Final = "agent/sandbox_wait"

ENOUGH_ROLLOUTS: Final = 32
"""Training rollouts that are over, before it is said that they wait for long."""


class SandboxTurns:
    """At most `places` rollouts play at once, each with a sandbox of its own.

    While both training and held-out rollouts wait, they take turns. So an evaluation has half of the sandboxes or more,
    however many training rollouts were there before it, and training goes on beside an evaluation that takes long.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        places: int,
        note: Callable[[Mapping[str, float]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`note` gets the figures of each training rollout."""
        self._toolbox, self._note, self._clock = toolbox, note, clock
        self._places = asyncio.Semaphore(places)
        self._heads = {split: asyncio.Lock() for split in ("train", "eval")}
        self._waits = _Waits()
        self._begun = self._playing = 0

    @property
    def all_wait(self) -> bool:
        """Whether there are rollouts, and none of them has a sandbox."""
        return self._begun > 0 and not self._playing

    @asynccontextmanager
    async def turn(self, split: str) -> AsyncIterator[ReservedSandbox]:
        """The sandbox of one rollout, once there is one. Raises SandboxLostError."""
        since = self._clock()
        self._begun += 1
        try:
            async with self._place(split):
                reserved = await self._toolbox.reserve()
                with self._in_use(reserved), self._timed(since, split):
                    yield reserved
        finally:
            self._begun -= 1

    @asynccontextmanager
    async def _place(self, split: str) -> AsyncIterator[None]:
        async with self._heads[split]:  # of each split one waits for a place, and those are served as they came
            await self._places.acquire()
        try:
            yield
        finally:
            self._places.release()

    @contextmanager
    def _in_use(self, reserved: ReservedSandbox) -> Iterator[None]:
        self._playing += 1
        try:
            yield
        finally:
            self._playing -= 1
            self._toolbox.free(reserved)

    @contextmanager
    def _timed(self, since: float, split: str) -> Iterator[None]:
        started = self._clock()
        if split == "train":
            self._note({WAIT_METRIC: started - since})
        yield
        if split == "train":
            self._waits.add(started - since, self._clock() - started)


@dataclass
class _Waits:
    """Of the training rollouts so far, in seconds."""

    rollouts: int = 0
    waited: float = 0.0
    played: float = 0.0
    has_warned: bool = False

    def add(self, waited: float, played: float) -> None:
        """Warns once, if they have waited for longer than they played."""
        self.rollouts, self.waited, self.played = self.rollouts + 1, self.waited + waited, self.played + played
        if self.rollouts < ENOUGH_ROLLOUTS or self.waited <= self.played or self.has_warned:
            return
        self.has_warned = True
        logger.warning(
            "rollouts wait longer for a sandbox (%.1f s on average) than they take (%.1f s): spec.sandbox.size says "
            "how many are played at once, and a larger one may make the run faster",
            self.waited / self.rollouts, self.played / self.rollouts,
        )  # fmt: skip
