"""What the journal knows of the run besides its groups: the registration, the trainer's last report, the leases, the
environments with their numbers, and the last METRICS_KEPT relayed metrics.

A group is kept from its POST until it is dropped, or a checkpoint covers the step that trained it (`batches.py`). How
the books count it until then and afterward: `books.py`. How repeats are distinguished from new groups: `arrivals.py`.
"""

import sqlite3
from collections.abc import Mapping, Sequence

import orjson

from tinker_atropos.trajectory_api.messages.requests import (
    EnvRegistration,
    LeaseReport,
    MetricsReport,
    ProgressReport,
    RegisteredEnv,
    RunState,
    StepBatch,
    TrainerRegistration,
)
from tinker_atropos.trajectory_api.store.batches import cover, mark_trained, return_to, step_after_delivered, take_batch
from tinker_atropos.trajectory_api.store.books import drop_rows
from tinker_atropos.trajectory_api.store.items import continue_from

METRICS_KEPT = 1_000
METRICS_FIELDS = ("seq", "time", "step", "source", "environment", "metric", "temperature", "metrics")
EVALUATION = "evaluation"
"""The source of a record that holds the result of an evaluation."""

LEASE = "lease/"


def register(sql: sqlite3.Connection, registration: TrainerRegistration, lost_leases: Sequence[str]) -> None:
    """A new or restarted trainer, from its starting step on. Groups that it cannot train are dropped.

    `lost_leases` belong to the previous one and are deleted. Of the run's items this journal knows more than the
    checkpoint does, unless it is new, or the checkpoint is older than what it has covered.
    """
    start, before = registration.starting_step, run_state(sql)
    _put(sql, "registration", registration.model_dump())
    _put(sql, "progress", ProgressReport(steps_trained=start).model_dump())
    _put(sql, "covered_step", start)
    sql.executemany("DELETE FROM run WHERE key = ?", [(f"{LEASE}{key}",) for key in lost_leases])
    return_to(sql, start)
    if before.registration is None or start < before.covered_step:
        continue_from(sql, registration.items)
    drop_rows(sql, "larger_than_batch", "rollouts > ?", (registration.batch_size,))
    if registration.vocabulary is not None:
        drop_rows(sql, "outside_vocabulary", "largest_token >= ?", (registration.vocabulary,))


def start(sql: sqlite3.Connection) -> None:
    _put(sql, "started", True)


def take_next_batch(sql: sqlite3.Connection, batch_size: int, minimum_shares: Mapping[int, float]) -> StepBatch:
    """A new batch, for a trainer that does not name its steps."""
    return take_batch(sql, step_after_delivered(sql, run_state(sql).progress.steps_trained), batch_size, minimum_shares)


def finish_delivered(sql: sqlite3.Connection) -> None:
    """What was delivered is trained, and will not be requested again."""
    state = run_state(sql)
    steps_trained = step_after_delivered(sql, state.progress.steps_trained)
    if steps_trained == state.covered_step:
        return
    _put(sql, "progress", state.progress.model_copy(update={"steps_trained": steps_trained}).model_dump())
    _put(sql, "covered_step", steps_trained)
    mark_trained(sql, steps_trained)
    cover(sql, steps_trained)


def record_progress(sql: sqlite3.Connection, report: ProgressReport) -> None:
    """Steps, the end and the covered step never go back within a registration: late repeats change nothing."""
    state = run_state(sql)
    _put(sql, "progress", report.after(state.progress).model_dump())
    mark_trained(sql, max(report.steps_trained, report.checkpoint_step or 0))
    if report.checkpoint_step is not None and report.checkpoint_step > state.covered_step:
        _put(sql, "covered_step", report.checkpoint_step)
        cover(sql, report.checkpoint_step)


def record_lease(sql: sqlite3.Connection, key: str, report: LeaseReport, forgotten: str | None = None) -> None:
    """`forgotten`: the key of a lease that this one replaces."""
    sql.execute("DELETE FROM run WHERE key = ?", (f"{LEASE}{forgotten}",))
    _put(sql, f"{LEASE}{key}", report.model_dump())


def run_state(sql: sqlite3.Connection) -> RunState:
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


def put_environment(sql: sqlite3.Connection, environment: RegisteredEnv) -> None:
    row = (environment.env_id, environment.wandb_name, environment.connected)
    registration = environment.registration.model_dump_json()
    sql.execute("INSERT OR REPLACE INTO environments VALUES (?, ?, ?, ?)", (*row, registration))


def environments(sql: sqlite3.Connection) -> list[RegisteredEnv]:
    return [
        RegisteredEnv(env_id, wandb_name, bool(connected), EnvRegistration.model_validate_json(registration))
        for env_id, wandb_name, connected, registration in sql.execute("SELECT * FROM environments ORDER BY env_id")
    ]


def add_metrics(sql: sqlite3.Connection, report: MetricsReport, received_at: float) -> int:
    """Returns the record's sequence number."""
    if report.source == EVALUATION and report.step is not None:
        _put(sql, "evaluated_step", max(report.step, run_state(sql).evaluated_step or 0))
    of_figure = (report.metric, report.temperature)
    metrics = orjson.dumps(report.metrics).decode()
    added = sql.execute(
        "INSERT INTO metrics (time, step, source, environment, metric, temperature, metrics) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (received_at, report.step, report.source, report.environment, *of_figure, metrics),
    )
    sequence = int(added.lastrowid or 0)
    sql.execute("DELETE FROM metrics WHERE seq <= ?", (sequence - METRICS_KEPT,))
    return sequence


def metrics_after(sql: sqlite3.Connection, sequence: int) -> list[dict[str, object]]:
    rows = sql.execute("SELECT * FROM metrics WHERE seq > ? ORDER BY seq", (sequence,)).fetchall()
    return [dict(zip(METRICS_FIELDS, row, strict=True)) | {"metrics": orjson.loads(row[-1])} for row in rows]
