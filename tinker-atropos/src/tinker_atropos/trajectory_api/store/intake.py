"""Receiving groups: several POSTs share a commit, and a POST that finds no room is held until there is some.

A client drops a group after a 4xx, and an environment dies after repeated 5xx. So a full journal does not answer at
first. Room becomes available when a checkpoint covers what was trained, or groups are dropped; and, while the trainer
lacks groups, from what is kept for replay. A POST that has waited HOLD_SECONDS gets a 503, in time for the client to
send it again (BaseEnv waits 300 s).
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tinker_atropos.trajectory_api.messages.records import NewGroupState, PostedGroups
from tinker_atropos.trajectory_api.store.arrivals import Stored
from tinker_atropos.trajectory_api.store.database import DiskFullError, JournalError

HOLD_SECONDS = 280.0
RETRY_SECONDS = 1.0
"""How often a held POST checks for room that is not signaled: space on the disk."""

Write = Callable[[Sequence[PostedGroups]], Awaitable[list[Stored | None]]]


@dataclass(frozen=True, slots=True)
class _Sender:
    delivery: PostedGroups
    states: asyncio.Future[Stored | None]


class Intake:
    """`held` is the number of POSTs that wait for room."""

    def __init__(self, write: Write, full: str, hold_seconds: float) -> None:
        """`full` is the error message for those that got no room."""
        self._write = write
        self._full = full
        self._hold_seconds = hold_seconds
        self._senders: list[_Sender] = []
        self._commit: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self.arrival = asyncio.Event()
        self.held = 0

    def room_made(self) -> None:
        """Have the held POSTs try again."""
        self._room.set()
        self._room = asyncio.Event()

    async def deliver(self, delivery: PostedGroups) -> Sequence[NewGroupState]:
        """Store and count; returns the groups' states. Raises JournalError if there was no room for too long."""
        states = await self._try(delivery)
        if states is not None:
            return states
        self.held += 1
        try:
            return await self._hold(delivery)
        finally:
            self.held -= 1

    async def _hold(self, delivery: PostedGroups) -> Sequence[NewGroupState]:
        give_up_at = time.monotonic() + self._hold_seconds
        while (remaining := give_up_at - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._room.wait(), min(RETRY_SECONDS, remaining))
            if (states := await self._try(delivery)) is not None:
                return states
        raise JournalError(self._full)

    async def _try(self, delivery: PostedGroups) -> Stored | None:
        """Senders that arrive during a commit share the next one: a slow disk costs latency, not throughput."""
        sender = _Sender(delivery, asyncio.get_running_loop().create_future())
        self._senders.append(sender)
        if self._commit is None or self._commit.done():
            self._commit = asyncio.create_task(self._commit_senders(), name="commit")
        return await sender.states

    async def _commit_senders(self) -> None:
        while self._senders:
            senders, self._senders = self._senders, []
            try:
                outcomes = await self._write([sender.delivery for sender in senders])
            except DiskFullError:
                outcomes = [None] * len(senders)
            except Exception as error:  # noqa: BLE001 -- each sender raises it in its own request
                for sender in senders:
                    sender.states.set_exception(error)
                continue
            for sender, states in zip(senders, outcomes, strict=True):
                sender.states.set_result(states)
            self.arrival.set()
            self.arrival = asyncio.Event()
