"""What the api stores, as transactions: each method is one, and its effect survives a SIGKILL.

What is kept, and for how long:

* A group from its POST until it is dropped, or a checkpoint covers the step that trained it (`batches.py`). How the
  books count it until then and afterward: `books.py`. How repeats are distinguished from new groups: `arrivals.py`.
* The registration, the trainer's last report, the leases, and the environments with their numbers.
* The last METRICS_KEPT relayed metrics.

The limit applies only to new groups: a trainer must be able to take batches from a full journal, and to make room.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from tinker_atropos.trajectory_api.messages.records import (
    Books,
    GroupCount,
    PostedGroups,
    RegisteredEnv,
    RunState,
    StepBatch,
)
from tinker_atropos.trajectory_api.messages.requests import (
    EnvRegistration,
    LeaseReport,
    MetricsReport,
    ProgressReport,
    TrainerRegistration,
)
from tinker_atropos.trajectory_api.store.arrivals import Stored, add_deliveries
from tinker_atropos.trajectory_api.store.batches import (
    cover,
    drop_groups,
    group_json,
    mark_trained,
    return_to,
    step_after_delivered,
    take_batch,
)
from tinker_atropos.trajectory_api.store.books import drop_rows, read_books
from tinker_atropos.trajectory_api.store.database import Database, used_bytes

METRICS_KEPT = 1_000
METRICS_FIELDS = ("seq", "time", "step", "source", "environment", "metrics")
EVALUATION = "evaluation"
"""The source of a record that holds the result of an evaluation."""

LEASE = "lease/"


class Journal:
    """Open (or create) the journal of a folder. Every method raises JournalError naming the file."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._database = Database(folder)
        self._counts: tuple[int, list[GroupCount]] = (-1, [])

    @property
    def path(self) -> Path:
        return self._database.path

    def full_sentence(self) -> str:
        return (
            f"the journal {self.path} holds its limit of {self.max_bytes} bytes: groups come faster than the trainer "
            "takes them; the sender tries again"
        )

    def close(self) -> None:
        self._database.close()

    # Writes: one transaction each, called from one thread at a time.

    def register(self, registration: TrainerRegistration, lost_leases: Sequence[str]) -> None:
        """A new or restarted trainer, from its starting step on. Groups that it cannot train are dropped.

        `lost_leases` belong to the previous one and are deleted.
        """
        start = registration.starting_step
        with self._database.transaction() as sql:
            _put(sql, "registration", registration.model_dump())
            _put(sql, "progress", ProgressReport(steps_trained=start).model_dump())
            _put(sql, "covered_step", start)
            sql.executemany("DELETE FROM run WHERE key = ?", [(f"{LEASE}{key}",) for key in lost_leases])
            return_to(sql, start)
            drop_rows(sql, "larger_than_batch", "rollouts > ?", (registration.batch_size,))
            if registration.vocabulary is not None:
                drop_rows(sql, "outside_vocabulary", "largest_token >= ?", (registration.vocabulary,))

    def start(self) -> None:
        with self._database.transaction() as sql:
            _put(sql, "started", True)

    def put_environment(self, environment: RegisteredEnv) -> None:
        row = (environment.env_id, environment.wandb_name, environment.connected)
        with self._database.transaction() as sql:
            sql.execute(
                "INSERT OR REPLACE INTO environments VALUES (?, ?, ?, ?)",
                (*row, environment.registration.model_dump_json()),
            )

    def add_deliveries(
        self,
        deliveries: Sequence[PostedGroups],
        now: float,
        evict_replay: bool = False,
    ) -> list[Stored | None]:
        """Store and count the groups of POSTs; None for those without room. `now` is in seconds since the epoch."""
        with self._database.transaction() as sql:
            return add_deliveries(sql, deliveries, now=now, max_bytes=self.max_bytes, evict_replay=evict_replay)

    def take_batch(self, step: int, batch_size: int, minimum_shares: Mapping[int, float]) -> StepBatch:
        """Batch `step`, the same one each time."""
        with self._database.transaction() as sql:
            return take_batch(sql, step, batch_size, minimum_shares)

    def take_next_batch(self, batch_size: int, minimum_shares: Mapping[int, float]) -> StepBatch:
        """A new batch, for a trainer that does not name its steps."""
        with self._database.transaction() as sql:
            step = step_after_delivered(sql, _run_state(sql).progress.steps_trained)
            return take_batch(sql, step, batch_size, minimum_shares)

    def finish_delivered(self) -> None:
        """What was delivered is trained, and will not be requested again."""
        with self._database.transaction() as sql:
            state = _run_state(sql)
            steps_trained = step_after_delivered(sql, state.progress.steps_trained)
            if steps_trained == state.covered_step:
                return
            _put(sql, "progress", state.progress.model_copy(update={"steps_trained": steps_trained}).model_dump())
            _put(sql, "covered_step", steps_trained)
            mark_trained(sql, steps_trained)
            cover(sql, steps_trained)

    def record_progress(self, report: ProgressReport) -> None:
        """Steps, the end and the covered step never go back within a registration: late repeats change nothing."""
        with self._database.transaction() as sql:
            state = _run_state(sql)
            _put(sql, "progress", report.after(state.progress).model_dump())
            mark_trained(sql, max(report.steps_trained, report.checkpoint_step or 0))
            if report.checkpoint_step is not None and report.checkpoint_step > state.covered_step:
                _put(sql, "covered_step", report.checkpoint_step)
                cover(sql, report.checkpoint_step)

    def drop_groups(self, group_ids: Sequence[int], reason: str) -> int:
        """Returns how many of them still existed."""
        with self._database.transaction() as sql:
            return drop_groups(sql, group_ids, reason)

    def record_lease(self, key: str, report: LeaseReport, forgotten: str | None = None) -> None:
        """`forgotten`: the key of a lease that this one replaces."""
        with self._database.transaction() as sql:
            sql.execute("DELETE FROM run WHERE key = ?", (f"{LEASE}{forgotten}",))
            _put(sql, f"{LEASE}{key}", report.model_dump())

    def add_metrics(self, report: MetricsReport, received_at: float) -> int:
        """Returns the record's sequence number."""
        metrics = orjson.dumps(report.metrics).decode()
        row = (received_at, report.step, report.source, report.environment, metrics)
        with self._database.transaction() as sql:
            if report.source == EVALUATION and report.step is not None:
                _put(sql, "evaluated_step", max(report.step, _run_state(sql).evaluated_step or 0))
            added = sql.execute(
                "INSERT INTO metrics (time, step, source, environment, metrics) VALUES (?, ?, ?, ?, ?)", row
            )
            sequence = int(added.lastrowid or 0)
            sql.execute("DELETE FROM metrics WHERE seq <= ?", (sequence - METRICS_KEPT,))
            return sequence

    # Reads: from the event loop.

    def run_state(self) -> RunState:
        with self._database.reading() as sql:
            return _run_state(sql)

    def environments(self) -> list[RegisteredEnv]:
        with self._database.reading() as sql:
            rows = sql.execute("SELECT * FROM environments ORDER BY env_id").fetchall()
        return [
            RegisteredEnv(env_id, wandb_name, bool(connected), EnvRegistration.model_validate_json(registration))
            for env_id, wandb_name, connected, registration in rows
        ]

    def books(self) -> dict[str, Books]:
        with self._database.reading() as sql:
            return read_books(sql)

    def group_counts(self) -> list[GroupCount]:
        """Groups by state, environment and size. Cached until the next commit: environments ask often."""
        commits = self._database.commits
        if self._counts[0] != commits:
            with self._database.reading() as sql:
                rows = sql.execute("SELECT state, env_id, rollouts, count(*) FROM groups GROUP BY 1, 2, 3").fetchall()
            self._counts = (commits, [GroupCount(*row) for row in rows])
        return self._counts[1]

    def oldest_queued_at(self) -> float | None:
        """When the group that has waited longest arrived, in seconds since the epoch."""
        with self._database.reading() as sql:
            (received_at,) = sql.execute("SELECT min(received_at) FROM groups WHERE state = 'queued'").fetchone()
        return None if received_at is None else float(received_at)

    def kept_batches(self) -> int:
        """Trained batches that can be replayed."""
        with self._database.reading() as sql:
            (kept,) = sql.execute(
                "SELECT count(DISTINCT step) FROM groups WHERE state = 'trained' AND content IS NOT NULL"
            ).fetchone()
        return int(kept)

    def latest_group(self) -> bytes | None:
        with self._database.reading() as sql:
            row = sql.execute(
                "SELECT content, gzipped FROM groups WHERE content IS NOT NULL ORDER BY id DESC LIMIT 1"
            ).fetchone()
        return None if row is None else group_json(*row)

    def metrics_after(self, sequence: int) -> list[dict[str, object]]:
        with self._database.reading() as sql:
            rows = sql.execute("SELECT * FROM metrics WHERE seq > ? ORDER BY seq", (sequence,)).fetchall()
        return [dict(zip(METRICS_FIELDS, row, strict=True)) | {"metrics": orjson.loads(row[-1])} for row in rows]

    def used_bytes(self) -> int:
        with self._database.reading() as sql:
            return used_bytes(sql)


def _run_state(sql: sqlite3.Connection) -> RunState:
    values = {key: orjson.loads(value) for key, value in sql.execute("SELECT key, value FROM run").fetchall()}
    return RunState(
        registration=TrainerRegistration(**values["registration"]) if "registration" in values else None,
        started="started" in values,
        progress=ProgressReport(**values.get("progress", {"steps_trained": 0})),
        covered_step=values.get("covered_step", 0),
        evaluated_step=values.get("evaluated_step"),
        leases={key.removeprefix(LEASE): LeaseReport(**values[key]) for key in values if key.startswith(LEASE)},
    )


def _put(sql: sqlite3.Connection, key: str, value: object) -> None:
    sql.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (key, orjson.dumps(value).decode()))
