"""The ledger on disk: SQLite, written asynchronously by a thread, so neither sampling nor training waits for a disk.

WAL with synchronous=NORMAL: a killed process loses what its thread had not written (milliseconds), a crashed machine
what was not yet flushed, and neither ever corrupts the file. Losing a record costs one forward pass; waiting for a
flush after every sample would cost each of them milliseconds.
"""

import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NamedTuple

from tinker_atropos.disk_room import FULL_SECONDS, is_of_full_disk, room_sentence

logger = logging.getLogger(__name__)

FILE_NAME = "ledger.sqlite"
CLOSE_SECONDS = 5.0
OVERHEAD_BYTES = 300
"""What a record costs in memory besides its arrays."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS generations (
  number INTEGER PRIMARY KEY, prompt_key INTEGER, output BLOB, logprobs BLOB,
  policy_step INTEGER, temperature REAL, top_p REAL, top_k INTEGER, sampled_at REAL, truncated INTEGER
)"""
_READ = """
SELECT number, prompt_key, output, logprobs, policy_step, temperature, top_p, top_k, sampled_at, truncated
FROM generations ORDER BY number"""


@dataclass(frozen=True, slots=True, eq=False)
class GenerationRecord:
    """One record. `output` (int32 token ids) and `logprobs` (float32) have the same length; `number` increases."""

    number: int
    prompt_key: int
    output: bytes
    logprobs: bytes
    policy_step: int
    temperature: float
    top_p: float
    top_k: int
    sampled_at: float
    truncated: bool = False

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.output) + len(self.logprobs) + OVERHEAD_BYTES


class _Change(NamedTuple):
    """A new record, and the oldest number that is still kept."""

    generation: GenerationRecord
    oldest: int


class LedgerFile:
    """The file in `folder`. If unreadable, it starts over; if it cannot be written, it is logged and given up. A full
    disk is waited for.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / FILE_NAME
        self._changes: queue.SimpleQueue[_Change | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True, name="ledger-file")

    def load(self) -> list[GenerationRecord]:
        """Read what the file holds, oldest first, and start the writing thread."""
        try:
            generations = self._read()
        except sqlite3.DatabaseError as error:
            logger.warning("the ledger %s cannot be read and starts over: %s", self._path, error)
            is_kept = is_of_full_disk(error, self._path.parent)
            with contextlib.suppress(PermissionError):  # the writer meets it too, and says so
                for leftover in () if is_kept else self._path.parent.glob(f"{FILE_NAME}*"):
                    leftover.unlink()
            generations = []
        self._writer.start()
        return generations

    def append(self, generation: GenerationRecord, oldest: int) -> None:
        """Write a record soon, and delete those below `oldest`."""
        if self._writer.is_alive():
            self._changes.put(_Change(generation, oldest))

    def close(self) -> None:
        """Write what is queued, within CLOSE_SECONDS."""
        self._closing.set()
        self._changes.put(None)
        self._writer.join(CLOSE_SECONDS)

    def _read(self) -> list[GenerationRecord]:
        with self._connected() as connection:
            rows = connection.execute(_READ).fetchall()
        return [GenerationRecord(*row) for row in rows]

    def _write(self) -> None:
        changes, waits = self._next_changes(), False
        while changes:
            try:
                with self._connected() as connection:
                    while changes:
                        _store(connection, changes)
                        changes, waits = self._next_changes(), False
            except sqlite3.Error as error:
                if self._closing.is_set() or not is_of_full_disk(error, self._path.parent):
                    logger.warning("the ledger %s is not written anymore (a restart recomputes): %s", self._path, error)
                    return
                if not waits:
                    logger.warning("the ledger %s waits: %s", self._path, room_sentence(self._path.parent))
                waits = True
                self._closing.wait(FULL_SECONDS)

    def _next_changes(self) -> list[_Change]:
        """All queued changes, at least one; none at the end."""
        changes: list[_Change] = []
        change = self._changes.get()
        while change is not None:
            changes.append(change)
            try:
                change = self._changes.get_nowait()
            except queue.Empty:
                return changes
        if changes:
            self._changes.put(None)  # the end marker comes after these
        return changes

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, timeout=CLOSE_SECONDS)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(_SCHEMA)
            yield connection
        finally:
            connection.close()


def _store(connection: sqlite3.Connection, changes: list[_Change]) -> None:
    with connection:
        rows = [astuple(change.generation) for change in changes]
        connection.executemany("INSERT OR REPLACE INTO generations VALUES (?,?,?,?,?,?,?,?,?,?)", rows)
        connection.execute("DELETE FROM generations WHERE number < ?", (changes[-1].oldest,))
