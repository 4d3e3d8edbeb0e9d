"""Which items of the run's data were dealt out, and what became of them.

A run has one order of items, whatever makes rollouts of them. Here an item is its position in that order: 0, 1, 2, …,
through all epochs. Positions are dealt to environment processes, the lowest first, each to one process. An item is

    under way   dealt to a process (a row of `items`), or where its group is (a row of `groups` that has its position)
    given back  its process ended, or the step that trained it was lost: it is dealt again, before new ones
    trained     a step of it is in `groups`, or a checkpoint covers that step
    dropped     for a reason, as a group is, or because it became no group

so that seen == trained + dropped + under way (which includes what was given back) in every state that a reader can see.
Of an item with several groups the first counts.

`position_at` says all of this as a text of at most MAX_STATE characters, for the checkpoint after a step. What it calls
consumed is neither dealt nor trained again by whoever continues from that checkpoint; all else is.
"""

import base64
import binascii
import sqlite3
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import orjson
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from tinker_atropos.trajectory_api.messages.requests import MAX_STATE, ItemBooks, ItemsRequest

MOST_UNDER_WAY = 4_096
"""Positions that one process may hold: what is under way has to fit into a checkpoint's text."""

GIVEN_BACK = ""
"""The holder of an item that waits to be dealt again."""

FORGOTTEN = "not_recorded"
"""Why an item is dropped whose position has no room in a checkpoint's text."""

BEGINNING = '{"next":0}'

MOST_REASONS = 8
"""For which a checkpoint says how many items were dropped; those of rarer ones are counted as `others`."""

LOST = ("checkpoint_lost", "replay_evicted")
"""Groups are dropped for these reasons because their step was lost: their items come again."""


def deal(sql: sqlite3.Connection, request: ItemsRequest, count: int, live: Collection[str]) -> list[int]:
    """The next `count` positions for a process, in order, once its ended items are noted. Items of processes that are
    not `live` are given back, and those that it does not know that it has.
    """
    for item in request.ended:
        ended = sql.execute("DELETE FROM items WHERE position = ? AND holder = ?", (item.position, request.id))
        _post(sql, "dropped", ended.rowcount, item.reason)
    if request.epoch_size is not None:
        _put(sql, "epoch_size", request.epoch_size)
    sql.execute(
        "UPDATE items SET holder = '' WHERE holder NOT IN (SELECT value FROM json_each(?))"
        " OR holder = ? AND position NOT IN (SELECT value FROM json_each(?))",
        (_json([GIVEN_BACK, request.id, *live]), request.id, _json(request.held)),
    )
    (held,) = sql.execute("SELECT count(*) FROM items WHERE holder = ?", (request.id,)).fetchone()
    return _dealt(sql, request.id, max(0, min(count, MOST_UNDER_WAY - held)))


def _dealt(sql: sqlite3.Connection, holder: str, count: int) -> list[int]:
    rows = sql.execute("SELECT position FROM items WHERE holder = '' ORDER BY position LIMIT ?", (count,)).fetchall()
    again, first = [position for (position,) in rows], _next(sql)
    sql.executemany("UPDATE items SET holder = ? WHERE position = ?", [(holder, position) for position in again])
    _post(sql, "again", len(again))
    new = range(first, first + count - len(again))
    sql.executemany("INSERT INTO items VALUES (?, ?)", [(position, holder) for position in new])
    _put(sql, "next_position", new.stop)
    return [*again, *new]


def take(sql: sqlite3.Connection, holders: Mapping[int, str]) -> set[int]:
    """Groups of these items came, from these processes: they count instead. Returns the positions of which that is
    true. The others are another process's by now, or done with: their groups must not be trained.

    A position that was never dealt here is from before a restart with an earlier checkpoint: all up to it are open.
    """
    _open_up_to(sql, max(holders, default=-1))
    rows = sql.execute(
        "SELECT position, holder FROM items WHERE position IN (SELECT value FROM json_each(?))", (_json(holders),)
    )
    taken = {position for position, holder in rows.fetchall() if holder in (GIVEN_BACK, holders[position])}
    sql.executemany("DELETE FROM items WHERE position = ?", [(position,) for position in taken])
    return taken


def _open_up_to(sql: sqlite3.Connection, position: int) -> None:
    first = _next(sql)
    if first <= position < first + MOST_UNDER_WAY:
        sql.executemany("INSERT INTO items VALUES (?, '')", [(each,) for each in range(first, position + 1)])
        _put(sql, "next_position", position + 1)


def item_covered(sql: sqlite3.Connection, items: int) -> None:
    """A checkpoint covers the step that trained them."""
    _post(sql, "trained", items)


def drop_items(sql: sqlite3.Connection, positions: Sequence[int], reason: str) -> None:
    """Their groups are dropped."""
    if reason in LOST:
        sql.executemany("INSERT OR IGNORE INTO items VALUES (?, '')", [(position,) for position in positions])
    else:
        _post(sql, "dropped", len(positions), reason)


def item_books(sql: sqlite3.Connection) -> ItemBooks:
    """A single statement, so that all counts are from the same moment."""
    rows = sql.execute(
        "SELECT entry, reason, items FROM item_books"
        " UNION ALL SELECT 'under_way', '', count(*) FROM items"
        " UNION ALL SELECT CASE state WHEN 'trained' THEN state ELSE 'under_way' END, '', count(*) FROM groups"
        " WHERE position IS NOT NULL GROUP BY state = 'trained'"
        " UNION ALL SELECT key, '', CAST(value AS INTEGER) FROM run WHERE key IN ('next_position', 'epoch_size')"
    ).fetchall()
    totals: dict[str, int] = {}
    for entry, _, items in rows:
        totals[entry] = totals.get(entry, 0) + items
    seen, size = totals.get("next_position", 0), totals.get("epoch_size")
    return ItemBooks(
        seen=seen,
        trained=totals.get("trained", 0),
        dropped={reason: items for entry, reason, items in rows if entry == "dropped"},
        under_way=totals.get("under_way", 0),
        again=totals.get("again", 0),
        epoch=(max(seen, 1) - 1) // size if size else None,
        epoch_size=size,
    )


class DataPosition(BaseModel):
    """What a checkpoint knows: positions below `next` that are not `open` were `trained` or `dropped`. `open` is a
    bitmap, its last bit the position before `next`, compressed.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    next: NonNegativeInt
    open: str = ""
    trained: NonNegativeInt = 0
    dropped: dict[str, NonNegativeInt] = {}
    again: NonNegativeInt = 0

    @classmethod
    def parse(cls, text: str) -> "DataPosition":
        """Raises ValueError."""
        try:
            found = cls.model_validate_json(text)
            found.open_positions()
        except (ValidationError, zlib.error, binascii.Error) as error:
            raise ValueError(f"{text!r}, which is not a position in the data") from error
        return found

    def open_positions(self) -> list[int]:
        packed = zlib.decompress(base64.b64decode(self.open)) if self.open else b""
        bits = int.from_bytes(packed)
        return [self.next - bit.bit_length() for bit in _single_bits(bits)][::-1]

    def text(self) -> str:
        return self.model_dump_json(exclude_defaults=True)


def _single_bits(bits: int) -> Iterable[int]:
    while bits:
        yield bits & -bits
        bits &= bits - 1


def _bitmap(positions: Iterable[int], following: int) -> str:
    bits = sum(1 << (following - 1 - position) for position in positions)
    packed = zlib.compress(bits.to_bytes((bits.bit_length() + 7) // 8), 9)
    return base64.b64encode(packed).decode() if bits else ""


def position_at(sql: sqlite3.Connection, step: int) -> str:
    """A DataPosition for the checkpoint after `step` steps: what they trained is consumed, and what was dropped until
    now. If the text has too little room, the oldest items that are open are given up: they count as dropped.
    """
    rows = sql.execute(
        "SELECT position FROM items UNION SELECT position FROM groups"
        " WHERE position IS NOT NULL AND (step IS NULL OR step >= ?) ORDER BY 1",
        (step,),
    )
    still_open = [position for (position,) in rows.fetchall()]
    books, following = item_books(sql), _next(sql)
    found = DataPosition(
        next=following,
        open=_bitmap(still_open, following),
        trained=following - len(still_open) - sum(books["dropped"].values()),
        dropped=_most_frequent(books["dropped"]),
        again=books["again"],
    )
    given_up = 0
    while len(text := found.text()) > MAX_STATE and still_open:
        given_up += (len(still_open) + 1) // 2
        still_open = still_open[(len(still_open) + 1) // 2 :]
        dropped = {**_most_frequent(books["dropped"]), FORGOTTEN: given_up}
        found = found.model_copy(update={"open": _bitmap(still_open, following), "dropped": dropped})
    return text


def _most_frequent(dropped: Mapping[str, int]) -> dict[str, int]:
    most = dict(Counter(dropped).most_common(MOST_REASONS))
    others = sum(dropped.values()) - sum(most.values())
    return {**most, "others": most.get("others", 0) + others} if others else most


def continue_from(sql: sqlite3.Connection, text: str | None) -> None:
    """Training continues from a checkpoint that says this: what it does not call consumed comes again. None: it says
    nothing, and the data begins with its first item.
    """
    found = DataPosition.parse(text or BEGINNING)
    known = {position for (position,) in sql.execute("SELECT position FROM items").fetchall()}
    known |= {
        position for (position,) in sql.execute("SELECT position FROM groups WHERE position IS NOT NULL").fetchall()
    }
    following = max(found.next, _next(sql))
    still_open = {*found.open_positions(), *range(found.next, following)} - known
    sql.executemany("INSERT INTO items VALUES (?, '')", [(position,) for position in sorted(still_open)])
    _put(sql, "next_position", following)
    sql.execute("DELETE FROM item_books")
    _post(sql, "trained", found.trained)
    _post(sql, "again", found.again)
    for reason, items in found.dropped.items():
        _post(sql, "dropped", items, reason)


def _json(values: Iterable[object]) -> str:
    return orjson.dumps(list(values)).decode()


def _next(sql: sqlite3.Connection) -> int:
    row = sql.execute("SELECT value FROM run WHERE key = 'next_position'").fetchone()
    return int(row[0]) if row else 0


def _put(sql: sqlite3.Connection, key: str, value: int) -> None:
    sql.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (key, str(value)))


def _post(sql: sqlite3.Connection, entry: str, items: int, reason: str = "") -> None:
    if items:
        sql.execute(
            "INSERT INTO item_books VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET items = items + excluded.items",
            (entry, reason, items),
        )
