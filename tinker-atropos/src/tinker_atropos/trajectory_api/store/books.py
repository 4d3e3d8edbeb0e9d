"""The books: where every group that was ever acknowledged is, counted in groups and in rollouts.

A group is a row of `groups` while it is buffered, queued, delivered, or trained and kept for replay. When the row is
deleted, the same transaction counts it in `covered` (trained for good, by step) or in `books` (dropped, by reason). So
received == buffered + queued + delivered + trained + dropped holds in every state that a reader can see, even after a
SIGKILL. Not in the sum: `duplicates` (repeats of a group that is already stored), `refused` (never stored) and
`replay_evicted` (trained groups whose content was deleted for room before a checkpoint covered them).
"""

import sqlite3
from collections.abc import Iterable

from tinker_atropos.trajectory_api.messages.requests import Books, GroupCount, RefusedGroup
from tinker_atropos.trajectory_api.store.items import drop_items


def post(sql: sqlite3.Connection, entry: str, groups: int, rollouts: int, reason: str = "") -> None:
    """Add to one line of the books."""
    if groups:
        sql.execute(
            "INSERT INTO books VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
            " SET groups = groups + excluded.groups, rollouts = rollouts + excluded.rollouts",
            (entry, reason, groups, rollouts),
        )


def post_refused(sql: sqlite3.Connection, refused: Iterable[RefusedGroup]) -> None:
    for group in refused:
        post(sql, "refused", 1, group.rollouts, group.reason)


def drop_rows(sql: sqlite3.Connection, reason: str, where: str, parameters: tuple[object, ...]) -> int:
    """Drop the groups that match a condition on `groups`, and count them. Returns how many there were."""
    rows = sql.execute(
        f"DELETE FROM groups WHERE {where} RETURNING rollouts, position",  # noqa: S608 -- our own condition
        parameters,
    ).fetchall()
    post(sql, "dropped", len(rows), sum(rollouts for rollouts, _ in rows), reason)
    drop_items(sql, [position for _, position in rows if position is not None], reason)
    return len(rows)


def read_books(sql: sqlite3.Connection) -> dict[str, Books]:
    """The books in `groups` and in `rollouts`. A single statement, so that all counts are from the same moment."""
    rows = sql.execute(
        "SELECT entry, reason, groups, rollouts FROM books"
        " UNION ALL SELECT state, '', count(*), sum(rollouts) FROM groups GROUP BY state"
        " UNION ALL SELECT 'trained', '', coalesce(sum(groups), 0), coalesce(sum(rollouts), 0) FROM covered"
    ).fetchall()
    return {
        "groups": _books((entry, reason, groups) for entry, reason, groups, _ in rows),
        "rollouts": _books((entry, reason, rollouts) for entry, reason, _, rollouts in rows),
    }


def _books(entries: Iterable[tuple[str, str, int]]) -> Books:
    totals: dict[str, int] = {}
    by_reason: dict[str, dict[str, int]] = {"refused": {}, "dropped": {}}
    for entry, reason, amount in entries:
        if entry in by_reason:
            by_reason[entry][reason] = amount
        else:
            totals[entry] = totals.get(entry, 0) + amount
    return Books(
        received=totals.get("received", 0),
        duplicates=totals.get("duplicates", 0),
        refused=by_reason["refused"],
        buffered=totals.get("buffered", 0),
        queued=totals.get("queued", 0),
        delivered=totals.get("delivered", 0),
        trained=totals.get("trained", 0),
        dropped=by_reason["dropped"],
        replay_evicted=totals.get("replay_evicted", 0),
    )


def group_counts(sql: sqlite3.Connection) -> list[GroupCount]:
    """Groups by state, environment and size."""
    rows = sql.execute("SELECT state, env_id, rollouts, count(*) FROM groups GROUP BY 1, 2, 3")
    return [GroupCount(*row) for row in rows]


def oldest_queued_at(sql: sqlite3.Connection) -> float | None:
    """When the group that has waited longest arrived, in seconds since the epoch."""
    (received_at,) = sql.execute("SELECT min(received_at) FROM groups WHERE state = 'queued'").fetchone()
    return None if received_at is None else float(received_at)


def kept_batches(sql: sqlite3.Connection) -> int:
    """Trained batches that can be replayed."""
    (kept,) = sql.execute(
        "SELECT count(DISTINCT step) FROM groups WHERE state = 'trained' AND content IS NOT NULL"
    ).fetchone()
    return int(kept)
