"""Whose turn it is where there are fewer sandboxes than rollouts, and how long rollouts wait for theirs."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from tinker_atropos.environments.agents.toolbox import ReservedSandbox, Toolbox

WAIT_METRIC: Final = "agent/sandbox_wait"

SPLITS: Final = ("eval", "train")

PATIENCE_SECONDS: Final = 10.0
"""Shorter waits of all rollouts are normal: pods are replaced."""


class SandboxTurns:
    """At most `places` rollouts play at once, each with a sandbox of its own.

    While both training and held-out rollouts wait, a free place is for the split that plays fewer, and on a tie for the
    held-out ones. So each split soon has half of the places, however long its rollouts are and however many wait; of an
    odd number the evaluation has one more, and a single place is its own until it is over.
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
        self._places = _Places(places)
        self._begun = self._playing = 0
        self._nobody_plays_since = 0.0

    @property
    def all_wait(self) -> bool:
        """Whether there are rollouts, and for a while none of them has had a sandbox."""
        waited = self._clock() - self._nobody_plays_since
        return self._begun > 0 and not self._playing and waited >= PATIENCE_SECONDS

    @asynccontextmanager
    async def turn(self, split: str) -> AsyncIterator[ReservedSandbox]:
        """The sandbox of one rollout, once there is one. Raises SandboxLostError."""
        since = self._clock()
        if not self._begun:
            self._nobody_plays_since = since
        self._begun += 1
        try:
            async with self._places.one(split):
                reserved = await self._toolbox.reserve()
                with self._in_use(reserved):
                    if split == "train":
                        self._note({WAIT_METRIC: self._clock() - since})
                    yield reserved
        finally:
            self._begun -= 1

    @contextmanager
    def _in_use(self, reserved: ReservedSandbox) -> Iterator[None]:
        self._playing += 1
        try:
            yield
        finally:
            self._playing -= 1
            self._nobody_plays_since = self._clock()
            self._toolbox.free(reserved)


class _Places:
    """Each split is served in its own order."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {split: deque() for split in SPLITS}

    @asynccontextmanager
    async def one(self, split: str) -> AsyncIterator[None]:
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[split].append(given)
        self._hand_out()
        try:
            await given
            yield
        finally:
            if not given.cancelled():  # a rollout may be canceled just when it has got its place
                self._free += 1
                self._held[split] -= 1
                self._hand_out()

    def _hand_out(self) -> None:
        while self._free and (wanted := [split for split in SPLITS if self._waiting[split]]):
            split = min(wanted, key=self._held.__getitem__)
            given = self._waiting[split].popleft()
            if not given.cancelled():
                self._free -= 1
                self._held[split] += 1
                given.set_result(None)
