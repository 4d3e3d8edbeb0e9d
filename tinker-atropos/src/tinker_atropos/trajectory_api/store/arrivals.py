"""How groups are added to the journal: once each, in order, and within its limit.

A repeat is recognized by its key: the client's `Idempotency-Key`, or else the content. Keys are kept for
REPEAT_SECONDS, longer than any client waits for an answer. A few statements serve all deliveries of a commit: each
statement releases the GIL, and getting it back from a busy event loop takes longer than the statement.
"""

import sqlite3
from collections.abc import Collection, Iterable, Sequence

import orjson

from tinker_atropos.trajectory_api.messages.records import NewGroupState, PostedGroups, ReceivedGroup
from tinker_atropos.trajectory_api.store.batches import evict_oldest_replay, first_exact
from tinker_atropos.trajectory_api.store.books import post, post_refused
from tinker_atropos.trajectory_api.store.database import used_bytes

REPEAT_SECONDS = 330.0
"""BaseEnv waits 300 s for an answer, and then sends the group again."""

Stored = tuple[NewGroupState, ...]
KnownKeys = dict[str, NewGroupState]


def add_deliveries(
    sql: sqlite3.Connection, deliveries: Sequence[PostedGroups], *, now: float, max_bytes: int, evict_replay: bool
) -> list[Stored | None]:
    """Store what there is room for. Returns the states of each delivery's groups, or None if there is no room.

    `evict_replay`: evict content that is kept for replay to make room, for a trainer that waits for new groups.
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
    sql.executemany(
        "INSERT INTO groups (env_id, rollouts, largest_token, state, received_at, gzipped, content)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (group.env_id, group.rollouts, group.largest_token, state, now, group.gzipped, group.content)
            for group, state in fresh
        ],
    )
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
