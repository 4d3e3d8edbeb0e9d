"""The api's only memory: one SQLite file. What a route acknowledged survives a SIGKILL, and a loss of power.

`synchronous=FULL` makes each commit wait for the disk. With a group of 8 x 512 tokens that costs about 0.3 ms more
than NORMAL (which a loss of power may roll back), and "answered with 200" then means "on disk" without conditions.

Two connections: writes come from one thread at a time, reads from the event loop, which in WAL mode never wait for a
write.
"""

import contextlib
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from tinker_atropos.errors import InternalError
from tinker_atropos.trajectory_api.batching import QueuedGroup, first_exact, form_batch
from tinker_atropos.trajectory_api.leases import PEERS, Role
from tinker_atropos.trajectory_api.records import GroupCount, NewGroupState, ReceivedGroup, RegisteredEnv, RunState
from tinker_atropos.trajectory_api.requests import (
    EnvRegistration,
    LeaseReport,
    MetricsReport,
    ProgressReport,
    Registration,
)

FILE_NAME = "journal.sqlite"
SCHEMA_VERSION = 1
PAGE_BYTES = 8192
GZIP_WBITS = zlib.MAX_WBITS | 16
ROWS_KEPT = 1_000
"""Of trained groups (without their content) and of metrics."""

SCHEMA = """
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE environments (env_id INTEGER PRIMARY KEY, wandb_name TEXT NOT NULL, connected INTEGER NOT NULL,
                           registration TEXT NOT NULL);
CREATE TABLE groups (id INTEGER PRIMARY KEY AUTOINCREMENT, env_id INTEGER, size INTEGER NOT NULL,
                     state TEXT NOT NULL CHECK (state IN ('buffered', 'queued', 'delivered', 'trained')),
                     batch INTEGER, received_at REAL NOT NULL, content_hash BLOB NOT NULL,
                     gzipped INTEGER NOT NULL, content BLOB);
CREATE INDEX groups_by_state ON groups (state, env_id, size);
CREATE INDEX groups_by_batch ON groups (batch) WHERE batch IS NOT NULL;
CREATE TABLE metrics (seq INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, step INTEGER, source TEXT NOT NULL,
                      metrics TEXT NOT NULL);
"""


class JournalError(InternalError):
    """The journal cannot be read or written. Nothing that was acknowledged is lost."""


class Journal:
    """Open (or create) the journal of a folder. Raises JournalError naming the file."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.path = folder / FILE_NAME
        self.max_bytes = max_bytes
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

    # Writes: one transaction each, called from one thread at a time.

    def register(self, registration: Registration) -> int:
        """A new registration begins at its starting step. Returns how many groups no batch of it can hold: dropped."""
        progress = ProgressReport(steps_trained=registration.starting_step)
        with self._transaction() as sql:
            _put(sql, "registration", registration.model_dump())
            _put(sql, "progress", progress.model_dump())
            return sql.execute(
                "DELETE FROM groups WHERE state IN ('queued', 'buffered') AND size > ?", (registration.batch_size,)
            ).rowcount

    def start(self) -> None:
        with self._transaction() as sql:
            _put(sql, "started", True)

    def put_environment(self, environment: RegisteredEnv) -> None:
        row = (environment.env_id, environment.wandb_name, environment.connected)
        with self._transaction() as sql:
            sql.execute(
                "INSERT OR REPLACE INTO environments VALUES (?, ?, ?, ?)",
                (*row, environment.registration.model_dump_json()),
            )

    def add_groups(self, groups: Sequence[ReceivedGroup], received_at: float) -> list[NewGroupState]:
        """Store all groups or none. Returns for each whether it is queued, or buffered for want of its fellows."""
        with self._transaction() as sql:
            self._check_limit(sql, groups)
            group_sizes: dict[int | None, int] = {env.env_id: env.registration.group_size for env in _environments(sql)}
            return [_add_group(sql, group, group_sizes.get(group.env_id), received_at) for group in groups]

    def take_batch(self, batch_size: int, minimum_shares: Mapping[int, float]) -> list[bytes] | None:
        """Take the next full batch, or None. It stays on disk as `delivered` until it is reported as trained."""
        with self._transaction() as sql:
            rows = sql.execute("SELECT id, env_id, size FROM groups WHERE state = 'queued' ORDER BY id").fetchall()
            batch = form_batch([QueuedGroup(*row) for row in rows], batch_size, minimum_shares)
            if batch is None:
                return None
            (number,) = sql.execute("SELECT coalesce(max(batch), 0) + 1 FROM groups WHERE batch IS NOT NULL").fetchone()
            for group in batch:
                sql.execute("UPDATE groups SET state = 'delivered', batch = ? WHERE id = ?", (number, group.group_id))
            return [_group_json(sql, group.group_id) for group in batch]

    def record_progress(self, progress: ProgressReport) -> None:
        """The trainer reports a step before it takes the next batch: what was delivered so far is trained.

        The newest content is kept for `/latest_example`, the others go.
        """
        with self._transaction() as sql:
            _put(sql, "progress", progress.model_dump())
            sql.execute("UPDATE groups SET state = 'trained' WHERE state = 'delivered'")
            sql.execute(
                "UPDATE groups SET content = NULL WHERE state = 'trained' AND content IS NOT NULL"
                " AND id < (SELECT max(id) FROM groups)"
            )
            sql.execute(
                "DELETE FROM groups WHERE state = 'trained' AND id < (SELECT max(id) FROM groups) - ?",
                (ROWS_KEPT,),
            )

    def record_lease(self, role: Role, report: LeaseReport) -> None:
        with self._transaction() as sql:
            _put(sql, f"lease/{role}", report.model_dump())

    def add_metrics(self, report: MetricsReport, received_at: float) -> int:
        """Returns the record's sequence number."""
        row = (received_at, report.step, report.source, orjson.dumps(report.metrics).decode())
        with self._transaction() as sql:
            added = sql.execute("INSERT INTO metrics (time, step, source, metrics) VALUES (?, ?, ?, ?)", row)
            sequence = int(added.lastrowid or 0)
            sql.execute("DELETE FROM metrics WHERE seq <= ?", (sequence - ROWS_KEPT,))
            return sequence

    # Reads: from the event loop.

    def run_state(self) -> RunState:
        with self._explained():
            rows = self._reader.execute("SELECT key, value FROM run").fetchall()
        values = {key: orjson.loads(value) for key, value in rows}
        return RunState(
            registration=Registration(**values["registration"]) if "registration" in values else None,
            started="started" in values,
            progress=ProgressReport(**values.get("progress", {"steps_trained": 0})),
            leases={role: LeaseReport(**values[f"lease/{role}"]) for role in PEERS if f"lease/{role}" in values},
        )

    def environments(self) -> list[RegisteredEnv]:
        with self._explained():
            return _environments(self._reader)

    def group_counts(self) -> list[GroupCount]:
        with self._explained():
            rows = self._reader.execute(
                "SELECT state, env_id, size, count(*) FROM groups WHERE state != 'trained' GROUP BY 1, 2, 3"
            ).fetchall()
        return [GroupCount(*row) for row in rows]

    def latest_group(self) -> bytes | None:
        with self._explained():
            row = self._reader.execute(
                "SELECT id FROM groups WHERE content IS NOT NULL AND state != 'buffered' ORDER BY id DESC LIMIT 1"
            ).fetchone()
            return None if row is None else _group_json(self._reader, row[0])

    def metrics_after(self, sequence: int) -> list[dict[str, Any]]:
        with self._explained():
            rows = self._reader.execute("SELECT * FROM metrics WHERE seq > ? ORDER BY seq", (sequence,)).fetchall()
        return [
            {"seq": seq, "time": time, "step": step, "source": source, "metrics": orjson.loads(metrics)}
            for seq, time, step, source, metrics in rows
        ]

    def used_bytes(self) -> int:
        with self._explained():
            return _used_bytes(self._reader)

    # Inside.

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

    def _check_limit(self, sql: sqlite3.Connection, groups: Sequence[ReceivedGroup]) -> None:
        """Only new groups are bounded: the trainer must be able to take batches from a full journal."""
        if _used_bytes(sql) + sum(len(group.content) for group in groups) > self.max_bytes:
            raise JournalError(
                f"the journal {self.path} has reached its limit of {self.max_bytes} bytes: groups come faster than "
                "the trainer takes them; senders try again"
            )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._explained():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            finally:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise JournalError(self._sentence(error)) from error

    def _sentence(self, error: sqlite3.Error) -> str:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return f"the journal {self.path} cannot grow: the disk is full; free space on it, senders try again"
        return f"the journal {self.path} does not work: {error}; check its folder and its disk"


def _environments(sql: sqlite3.Connection) -> list[RegisteredEnv]:
    return [
        RegisteredEnv(env_id, wandb_name, bool(connected), EnvRegistration.model_validate_json(registration))
        for env_id, wandb_name, connected, registration in sql.execute("SELECT * FROM environments ORDER BY env_id")
    ]


def _add_group(
    sql: sqlite3.Connection, group: ReceivedGroup, group_size: int | None, received_at: float
) -> NewGroupState:
    """A group smaller than its environment's group_size waits until such groups sum to it."""
    state: NewGroupState = "buffered" if group_size is not None and group.size < group_size else "queued"
    sql.execute(
        "INSERT INTO groups (env_id, size, state, received_at, content_hash, gzipped, content)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (group.env_id, group.size, state, received_at, group.content_hash, group.gzipped, group.content),
    )
    if state == "buffered" and group_size is not None:
        _release_buffered(sql, group.env_id, group_size)
    return state


def _used_bytes(sql: sqlite3.Connection) -> int:
    (pages,) = sql.execute("PRAGMA page_count").fetchone()
    (free_pages,) = sql.execute("PRAGMA freelist_count").fetchone()
    return int(pages - free_pages) * PAGE_BYTES


def _group_json(sql: sqlite3.Connection, group_id: int) -> bytes:
    gzipped, content = sql.execute("SELECT gzipped, content FROM groups WHERE id = ?", (group_id,)).fetchone()
    return zlib.decompress(content, wbits=GZIP_WBITS) if gzipped else bytes(content)


def _put(sql: sqlite3.Connection, key: str, value: Any) -> None:
    sql.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (key, orjson.dumps(value).decode()))


def _release_buffered(sql: sqlite3.Connection, env_id: int | None, group_size: int) -> None:
    rows = sql.execute(
        "SELECT id, size FROM groups WHERE state = 'buffered' AND env_id = ? ORDER BY id", (env_id,)
    ).fetchall()
    for position in first_exact([size for _, size in rows], group_size) or ():
        sql.execute("UPDATE groups SET state = 'queued' WHERE id = ?", (rows[position][0],))
