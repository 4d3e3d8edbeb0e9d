"""The api's only storage: one SQLite file. What a route acknowledged survives a SIGKILL and a power loss.

`synchronous=FULL` makes each commit wait for the disk. With a group of 8 x 512 tokens that costs about 0.3 ms more
than NORMAL (which a power loss may roll back), and a 200 then means "on disk", unconditionally.

Two connections: writes come from one thread at a time, reads from the event loop; in WAL mode they never wait for a
write.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from tinker_atropos.disk_room import is_of_full_disk, room_sentence
from tinker_atropos.errors import InternalError

FILE_NAME = "journal.sqlite"
SCHEMA_VERSION = 5
PAGE_BYTES = 8192

SCHEMA = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE environments (env_id INTEGER PRIMARY KEY, wandb_name TEXT NOT NULL, connected INTEGER NOT NULL,
                           registration TEXT NOT NULL);
CREATE TABLE groups (id INTEGER PRIMARY KEY AUTOINCREMENT, env_id INTEGER, rollouts INTEGER NOT NULL,
                     largest_token INTEGER NOT NULL,
                     state TEXT NOT NULL CHECK (state IN ('buffered', 'queued', 'delivered', 'trained')),
                     step INTEGER CHECK ((step IS NULL) = (state IN ('buffered', 'queued'))),
                     received_at REAL NOT NULL, gzipped INTEGER NOT NULL, position INTEGER, content BLOB);
CREATE INDEX groups_by_state ON groups (state, env_id, rollouts);
CREATE INDEX groups_by_step ON groups (step) WHERE step IS NOT NULL;
CREATE TABLE covered (step INTEGER PRIMARY KEY, groups INTEGER NOT NULL, rollouts INTEGER NOT NULL);
CREATE TABLE books (entry TEXT NOT NULL CHECK (entry IN ('received', 'duplicates', 'refused', 'dropped',
                                                         'replay_evicted')),
                    reason TEXT NOT NULL, groups INTEGER NOT NULL, rollouts INTEGER NOT NULL,
                    PRIMARY KEY (entry, reason)) WITHOUT ROWID;
CREATE TABLE items (position INTEGER PRIMARY KEY, holder TEXT NOT NULL);
CREATE TABLE item_books (entry TEXT NOT NULL CHECK (entry IN ('trained', 'dropped', 'again')), reason TEXT NOT NULL,
                         items INTEGER NOT NULL, PRIMARY KEY (entry, reason)) WITHOUT ROWID;
CREATE TABLE receipts (key TEXT PRIMARY KEY, state TEXT NOT NULL, received_at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX receipts_by_time ON receipts (received_at);
CREATE TABLE metrics (seq INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, step INTEGER, source TEXT NOT NULL,
                      environment INTEGER, metric TEXT, temperature REAL, metrics TEXT NOT NULL);
"""


class JournalError(InternalError):
    """The journal cannot be read or written. Nothing that was acknowledged is lost."""


class DiskFullError(JournalError):
    """There is no space left. Writes are retried: space may become available."""


Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class Journal:
    """Open (or create) the file in a folder. Every sqlite3 error becomes a JournalError that names the file.

    `max_bytes` limits new groups only: a trainer must be able to take batches from a full journal, and to make room.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.path = folder / FILE_NAME
        self.max_bytes = max_bytes
        self.commits = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise JournalError(f"cannot make the journal's folder {folder}: {error.strerror}") from None
        with self._explained():
            self._writer = self._connect()
            self._create_or_check_schema()
            self._reader = self._connect()

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    def full_sentence(self) -> str:
        return (
            f"the journal {self.path} holds its limit of {self.max_bytes} bytes: groups come faster than the trainer "
            "takes them; the sender tries again"
        )

    def write(
        self,
        change: Callable[Concatenate[sqlite3.Connection, Arguments], Answer],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Answer:
        """One transaction. Called from one thread at a time."""
        with self._explained():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                answer = change(self._writer, *arguments, **options)
                self._writer.execute("COMMIT")
                self.commits += 1
            finally:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
        return answer

    def read(
        self,
        query: Callable[Concatenate[sqlite3.Connection, Arguments], Answer],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Answer:
        """From the event loop. Each statement sees one commit; two statements may see different ones."""
        with self._explained():
            return query(self._reader, *arguments, **options)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def _create_or_check_schema(self) -> None:
        (version,) = self._writer.execute("PRAGMA user_version").fetchone()
        if version == 0:
            self._writer.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
        elif version != SCHEMA_VERSION:
            raise JournalError(
                f"{self.path} has schema {version}, this version reads {SCHEMA_VERSION}: use another folder"
            )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if is_of_full_disk(error, self.path.parent):
                raise DiskFullError(f"{room_sentence(self.path.parent)}, the journal waits for it") from error
            raise JournalError(
                f"the journal {self.path} does not work: {error}; check its folder and its disk"
            ) from error


def used_bytes(sql: sqlite3.Connection) -> int:
    (pages,) = sql.execute("PRAGMA page_count").fetchone()
    (free_pages,) = sql.execute("PRAGMA freelist_count").fetchone()
    return int(pages - free_pages) * PAGE_BYTES
