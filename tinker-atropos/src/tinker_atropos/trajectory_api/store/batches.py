"""Batches by step: formed once, delivered again each time they are requested, and kept until a checkpoint covers them.

Batch S is what step S trains. Its groups are `delivered` until the trainer reports more than S steps, then `trained`.
A trained batch keeps its content until a checkpoint includes its step (S < covered_step): a trainer that has to go
back to the checkpoint gets the same groups again, and they are counted as trained once.
"""

import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from tinker_atropos.trajectory_api.messages.requests import StepBatch
from tinker_atropos.trajectory_api.store.books import drop_rows, post
from tinker_atropos.trajectory_api.store.items import item_covered


@dataclass(frozen=True, slots=True)
class QueuedGroup:
    """A queued group as batching sees it: `size` is its number of rollouts."""

    group_id: int
    env_id: int | None
    size: int


def first_exact(sizes: Sequence[int], target: int) -> list[int] | None:
    """The oldest positions whose sizes sum to exactly `target`; None if there is no such choice.

    "Oldest" is lexicographic: an item is skipped only if no exact sum contains it and the ones taken before it.
    """
    within_target = (1 << (target + 1)) - 1
    reachable = [1]  # bit n of the last entry: the items looked at so far can sum to n (from the newest item backward)
    for size in reversed(sizes):
        reachable.append((reachable[-1] | reachable[-1] << size) & within_target)
    chosen: list[int] = []
    missing = target
    for position, size in enumerate(sizes):
        behind = reachable[len(sizes) - position - 1]
        if size <= missing and behind >> (missing - size) & 1:
            chosen.append(position)
            missing -= size
    return None if missing else chosen


def form_batch(
    queue: Sequence[QueuedGroup], batch_size: int, minimum_shares: Mapping[int, float]
) -> list[QueuedGroup] | None:
    """The next batch of exactly `batch_size` rollouts, in queue order, or None if there is none yet.

    `minimum_shares` (env_id -> fraction of a batch) come first if such groups are queued, but never delay a batch: an
    environment that sends nothing must not stop training.
    """
    ranked = _shares_first(queue, {env: int(batch_size * share) for env, share in minimum_shares.items()})
    chosen = first_exact([group.size for group in ranked], batch_size)
    if chosen is None:
        return None
    return sorted((ranked[position] for position in chosen), key=lambda group: group.group_id)


def _shares_first(queue: Sequence[QueuedGroup], owed: dict[int, int]) -> list[QueuedGroup]:
    preferred: list[QueuedGroup] = []
    others: list[QueuedGroup] = []
    for group in queue:
        rollouts_owed = owed.get(group.env_id, 0) if group.env_id is not None else 0
        if group.env_id is not None and rollouts_owed > 0:
            owed[group.env_id] = rollouts_owed - group.size
            preferred.append(group)
        else:
            others.append(group)
    return preferred + others


GZIP_WBITS = zlib.MAX_WBITS | 16


def take_batch(sql: sqlite3.Connection, step: int, batch_size: int, minimum_shares: Mapping[int, float]) -> StepBatch:
    """Batch `step`, the same one each time: the groups that it has, filled from the queue to `batch_size` rollouts.

    As long as the queue does not hold what is missing, nothing is taken from it. If sizes are odd, a group may go back
    to the queue because the batch can only be filled without it. The groups of a batch are in the order of the run's
    items: it does not depend on which was made first.
    """
    drop_rows(sql, "replay_evicted", "step = ? AND content IS NULL", (step,))
    held = _candidates(sql, "step = ?", (step,))
    missing = batch_size - sum(group.size for group in held)
    if missing:
        chosen = form_batch([*held, *_candidates(sql, "state = 'queued'", ())], batch_size, minimum_shares)
        if chosen is None:
            return StepBatch(missing=max(1, missing))
        added, returned = set(chosen) - set(held), set(held) - set(chosen)
        sql.executemany(
            "UPDATE groups SET state = 'delivered', step = ? WHERE id = ?", [(step, group.group_id) for group in added]
        )
        sql.executemany(
            "UPDATE groups SET state = 'queued', step = NULL WHERE id = ?", [(group.group_id,) for group in returned]
        )
    groups = sql.execute(
        "SELECT id, received_at, gzipped, content FROM groups WHERE step = ? ORDER BY position IS NULL, position, id",
        (step,),
    ).fetchall()
    return StepBatch(
        group_ids=tuple(group_id for group_id, *_ in groups),
        received_at=tuple(received_at for _, received_at, *_ in groups),
        contents=tuple(_group_json(content, gzipped) for *_, gzipped, content in groups),
    )


def _candidates(sql: sqlite3.Connection, where: str, parameters: tuple[int, ...]) -> list[QueuedGroup]:
    rows = sql.execute(
        f"SELECT id, env_id, rollouts FROM groups WHERE {where} ORDER BY id",  # noqa: S608 -- our own condition
        parameters,
    )
    return [QueuedGroup(*row) for row in rows.fetchall()]


def step_after_delivered(sql: sqlite3.Connection, steps_trained: int) -> int:
    """The first step at or after `steps_trained` that has no batch, for a trainer that does not name its steps."""
    (last,) = sql.execute("SELECT max(step) FROM groups WHERE state = 'delivered'").fetchone()
    return steps_trained if last is None else max(steps_trained, int(last) + 1)


def drop_groups(sql: sqlite3.Connection, group_ids: Sequence[int], reason: str) -> int:
    """Remove groups from their batches for good. Returns how many still existed: a repeated call drops nothing."""
    asked = orjson.dumps(list(group_ids)).decode()
    named = "step IS NOT NULL AND id IN (SELECT value FROM json_each(?))"
    return drop_rows(sql, reason, named, (asked,))


def mark_trained(sql: sqlite3.Connection, steps_trained: int) -> None:
    sql.execute("UPDATE groups SET state = 'trained' WHERE state = 'delivered' AND step < ?", (steps_trained,))


def cover(sql: sqlite3.Connection, covered_step: int) -> None:
    """A checkpoint includes the steps below `covered_step`: their groups are trained for good."""
    sql.execute(
        "INSERT INTO covered SELECT step, count(*), sum(rollouts) FROM groups WHERE step < ? GROUP BY step"
        " ON CONFLICT DO UPDATE SET groups = groups + excluded.groups, rollouts = rollouts + excluded.rollouts",
        (covered_step,),
    )
    gone = sql.execute("DELETE FROM groups WHERE step < ? RETURNING position", (covered_step,)).fetchall()
    item_covered(sql, sum(position is not None for (position,) in gone))


def return_to(sql: sqlite3.Connection, step: int) -> None:
    """The trainer restarts with the weights after `step` steps: later steps are lost.

    Their groups are trained again if they are still stored, else they count as dropped.
    """
    groups, rollouts = sql.execute(
        "SELECT coalesce(sum(groups), 0), coalesce(sum(rollouts), 0) FROM covered WHERE step >= ?", (step,)
    ).fetchone()
    sql.execute("DELETE FROM covered WHERE step >= ?", (step,))
    post(sql, "dropped", groups, rollouts, "checkpoint_lost")
    drop_rows(sql, "replay_evicted", "step >= ? AND content IS NULL", (step,))
    sql.execute("UPDATE groups SET state = 'delivered' WHERE step >= ?", (step,))
    mark_trained(sql, step)
    cover(sql, step)


def evict_oldest_replay(sql: sqlite3.Connection) -> bool:
    """Delete the content of the oldest batch that is kept for replay. False if none is kept."""
    step, groups, rollouts = sql.execute(
        "SELECT step, count(*), sum(rollouts) FROM groups WHERE state = 'trained' AND content IS NOT NULL"
        " GROUP BY step ORDER BY step LIMIT 1"
    ).fetchone() or (None, 0, 0)
    if step is None:
        return False
    sql.execute("UPDATE groups SET content = NULL WHERE state = 'trained' AND step = ?", (step,))
    post(sql, "replay_evicted", groups, rollouts)
    return True


def latest_group(sql: sqlite3.Connection) -> bytes | None:
    row = sql.execute(
        "SELECT content, gzipped FROM groups WHERE content IS NOT NULL ORDER BY id DESC LIMIT 1"
    ).fetchone()
    return None if row is None else _group_json(*row)


def _group_json(content: bytes, gzipped: bool) -> bytes:
    return zlib.decompress(content, wbits=GZIP_WBITS) if gzipped else bytes(content)
