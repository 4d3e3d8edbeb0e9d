"""How groups are added to the journal: once each, in order, and within its limit.

A repeat is recognized by its key: the client's `Idempotency-Key`, or else the content. Keys are kept for
REPEAT_SECONDS, longer than any client waits for an answer. A few statements serve all deliveries of a commit: each
statement releases the GIL, and getting it back from a busy event loop takes longer than the statement.

Several POSTs share a commit, and a POST that finds no room is held until there is some (`Intake`): a client drops a
group after a 4xx, and an environment dies after repeated 5xx. Room becomes available when a checkpoint covers what was
trained, or groups are dropped; and, while the trainer lacks groups, from what is kept for replay. A POST that has
waited HOLD_SECONDS gets a 503, in time for the client to send it again (BaseEnv waits 300 s).
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import orjson

from tinker_atropos.running_time import running_seconds
from tinker_atropos.trajectory_api.messages.requests import NewGroupState, PostedGroups, ReceivedGroup
from tinker_atropos.trajectory_api.store.batches import evict_oldest_replay, first_exact
from tinker_atropos.trajectory_api.store.books import post, post_refused
from tinker_atropos.trajectory_api.store.items import take
from tinker_atropos.trajectory_api.store.journal import DiskFullError, JournalError, used_bytes

HOLD_SECONDS = 280.0
RETRY_SECONDS = 1.0
"""How often a held POST checks for room that is not signaled: space on the disk."""

NO_SPACE = "no room is left for the journal: make some, the sender tries again"

DEALT_AGAIN = "dealt_again"
"""Why a group is dropped whose item is another process's by now: it would be trained twice."""

REPEAT_SECONDS = 330.0
"""BaseEnv waits 300 s for an answer, and then sends the group again."""

Stored = tuple[NewGroupState, ...]
KnownKeys = dict[str, NewGroupState]


def add_deliveries(
    sql: sqlite3.Connection,
    deliveries: Sequence[PostedGroups],
    *,
    now: float,
    max_bytes: int,
    evict_replay: bool = False,
) -> list[Stored | None]:
    """Store what there is room for. Returns the states of each delivery's groups, or None if there is no room.

    `now` is in seconds since the epoch. `evict_replay`: evict content that is kept for replay to make room, for a
    trainer that waits for new groups.
    """
    known = _known_keys(sql, [group.key for delivery in deliveries for group in delivery.groups], now)
    group_sizes = _group_sizes(sql, {group.env_id for delivery in deliveries for group in delivery.groups})
    room = _Room(sql, max_bytes, evict_replay=evict_replay)
    fresh: list[tuple[ReceivedGroup, NewGroupState]] = []
    outcomes: list[Stored | None] = []
    repeats: list[ReceivedGroup] = []
    for delivery in deliveries:
        unknown = {group.key: group for group in delivery.groups if group.key not in known}
        if unknown and not room.take(sum(len(group.content) for group in unknown.values())):
            outcomes.append(None)
            continue
        repeats += [group for group in delivery.groups if group.key in known]
        states = {key: _first_state(group, group_sizes.get(group.env_id)) for key, group in unknown.items()}
        fresh += [(group, states[key]) for key, group in unknown.items()]
        known |= states
        post_refused(sql, delivery.refused)
        outcomes.append(tuple(known[group.key] for group in delivery.groups))
    _insert(sql, fresh, now)
    post(sql, "duplicates", len(repeats), sum(group.rollouts for group in repeats))
    for env_id in {group.env_id for group, state in fresh if state == "buffered"}:
        _release_buffered(sql, env_id, group_sizes[env_id])
    return outcomes


class _Room:
    """What is left of the journal's limit within one transaction."""

    def __init__(self, sql: sqlite3.Connection, max_bytes: int, *, evict_replay: bool) -> None:
        self._sql = sql
        self._max_bytes = max_bytes
        self._evict_replay = evict_replay
        self._used = used_bytes(sql)
        self._taken = 0

    def take(self, content_bytes: int) -> bool:
        while self._used + self._taken + content_bytes > self._max_bytes:
            if not (self._evict_replay and evict_oldest_replay(self._sql)):
                return False
            self._used = used_bytes(self._sql)
        self._taken += content_bytes
        return True


def _known_keys(sql: sqlite3.Connection, keys: Iterable[str], now: float) -> KnownKeys:
    sql.execute("DELETE FROM receipts WHERE received_at < ?", (now - REPEAT_SECONDS,))
    asked = orjson.dumps(list(keys)).decode()
    rows = sql.execute("SELECT key, state FROM receipts WHERE key IN (SELECT value FROM json_each(?))", (asked,))
    return dict(rows.fetchall())


def _group_sizes(sql: sqlite3.Connection, env_ids: Collection[int | None]) -> dict[int | None, int]:
    """The registered group_size of each environment; those that never registered are missing."""
    asked = orjson.dumps(list(env_ids)).decode()
    rows = sql.execute(
        "SELECT env_id, json_extract(registration, '$.group_size') FROM environments"
        " WHERE env_id IN (SELECT value FROM json_each(?))",
        (asked,),
    )
    return dict(rows.fetchall())


def _first_state(group: ReceivedGroup, group_size: int | None) -> NewGroupState:
    """A group smaller than its environment's group_size is buffered until such groups sum to it."""
    return "buffered" if group_size is not None and group.rollouts < group_size else "queued"


def _insert(sql: sqlite3.Connection, fresh: Sequence[tuple[ReceivedGroup, NewGroupState]], now: float) -> None:
    taken = take(sql, {group.position: group.holder for group, _ in fresh if group.position is not None})
    late = [group for group, _ in fresh if group.position is not None and group.position not in taken]
    sql.executemany(
        "INSERT INTO groups (env_id, rollouts, largest_token, state, received_at, gzipped, position, content)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                group.env_id,
                group.rollouts,
                group.largest_token,
                state,
                now,
                group.gzipped,
                group.position,
                group.content,
            )
            for group, state in fresh
            if group.position is None or group.position in taken
        ],
    )
    post(sql, "dropped", len(late), sum(group.rollouts for group in late), DEALT_AGAIN)
    sql.executemany("INSERT INTO receipts VALUES (?, ?, ?)", [(group.key, state, now) for group, state in fresh])
    post(sql, "received", len(fresh), sum(group.rollouts for group, _ in fresh))


def _release_buffered(sql: sqlite3.Connection, env_id: int | None, group_size: int) -> None:
    """Queue buffered groups while some of them sum to `group_size`."""
    while True:
        rows = sql.execute(
            "SELECT id, rollouts FROM groups WHERE state = 'buffered' AND env_id = ? ORDER BY id", (env_id,)
        ).fetchall()
        positions = first_exact([rollouts for _, rollouts in rows], group_size)
        if positions is None:
            return
        sql.executemany("UPDATE groups SET state = 'queued' WHERE id = ?", [(rows[p][0],) for p in positions])


Write = Callable[[Sequence[PostedGroups]], Awaitable[list[Stored | None]]]


@dataclass(frozen=True, slots=True)
class _Sender:
    delivery: PostedGroups
    states: asyncio.Future[Stored | None]


class Intake:
    """`held` is the number of POSTs that wait for room in the journal."""

    def __init__(self, write: Write, full: str, hold_seconds: float) -> None:
        """`full` is the error message for those that got no room."""
        self._write = write
        self._full, self._no_space = full, False
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
        give_up_at = running_seconds() + self._hold_seconds
        while (remaining := give_up_at - running_seconds()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._room.wait(), min(RETRY_SECONDS, remaining))
            if (states := await self._try(delivery)) is not None:
                return states
        raise DiskFullError(NO_SPACE) if self._no_space else JournalError(self._full)

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
                outcomes, self._no_space = [None] * len(senders), True
            except Exception as error:  # noqa: BLE001 -- each sender raises it in its own request
                for sender in senders:
                    sender.states.set_exception(error)
                continue
            else:
                self._no_space = False
            for sender, states in zip(senders, outcomes, strict=True):
                sender.states.set_result(states)
            self.arrival.set()
            self.arrival = asyncio.Event()
