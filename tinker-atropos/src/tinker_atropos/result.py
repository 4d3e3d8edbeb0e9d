"""The trainer's result: the container's termination message, at most 1,360 bytes.

It is written at readiness and rewritten at every checkpoint with `outcome: running`, so that even a process that is
killed leaves behind its last state path. The other processes have no result; they leave behind why they failed.
"""

import contextlib
import os
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import orjson

from rl_contract.processes import ErrorClass
from tinker_atropos.errors import RunError

MAX_BYTES = 1360
"""A kubelet keeps 12 KiB for all containers of a pod: so much for each of nine."""

SCHEMA = 1

Outcome = Literal["running", "succeeded", "stopped", "failed"]


def timestamp(moment: datetime | None) -> str | None:
    """A moment in the format of the contract: UTC, in whole seconds."""
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class ResultError:
    error_class: ErrorClass
    message: str


@dataclass(frozen=True, slots=True)
class BestCheckpoint:
    """The weights with the best held-out figure so far, as they travel: in a result, in `/status`, to a next attempt.

    `low` and `high` end its 95 % interval, if it has one. `expires_at` as in the contract; None: never.
    """

    step: int
    figure: float
    state_path: str
    sampler_path: str
    low: float | None = None
    high: float | None = None
    expires_at: str | None = None

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "BestCheckpoint":
        """Raises KeyError, TypeError or ValueError for something else."""
        optional = {ours: wire.get(name) for ours, name in _OPTIONAL_OF_BEST.items()}
        figure, step = float(wire["evalAccuracy"]), int(wire["step"])
        return cls(step, figure, str(wire["statePath"]), str(wire["samplerPath"]), **optional)

    def to_wire(self) -> dict[str, Any]:
        paths = {"statePath": self.state_path, "samplerPath": self.sampler_path}
        optional = {name: getattr(self, ours) for ours, name in _OPTIONAL_OF_BEST.items()}
        given = {name: value for name, value in optional.items() if value is not None}
        return {"step": self.step, "evalAccuracy": self.figure, **paths, **given}


_OPTIONAL_OF_BEST = {"low": "evalAccuracyLow", "high": "evalAccuracyHigh", "expires_at": "expiresAt"}


@dataclass(frozen=True, slots=True)
class EvaluatedFigures:
    """What one evaluation found, if that is more than one figure, as it travels: what matters most comes first.

    A row is a name, a value, the ends of its 95 % interval, and the samples behind it; None: unknown. `more` others
    have no room.
    """

    step: int
    rows: tuple["FigureRow", ...]
    more: int = 0

    @property
    def shorter(self) -> "EvaluatedFigures | None":
        """Without the last row; None: there is no other."""
        return replace(self, rows=self.rows[:-1], more=self.more + 1) if len(self.rows) > 1 else None

    def to_wire(self) -> dict[str, Any]:
        rows = [[each if each is None or isinstance(each, str) else rounded(each) for each in row] for row in self.rows]
        return {"step": self.step, "figures": rows, "more": self.more}


FigureRow = tuple[str, float, float | None, float | None, int | None]

_METRICS_BY_WEIGHT = (
    *("evalAccuracy", "evalStep", "baselineAccuracy", "rewardMean"),
    *("evalAccuracyLow", "evalAccuracyHigh", "baselineAccuracyLow", "baselineAccuracyHigh"),
)
"""The metrics of a result that are dropped last, if not all have room."""


@dataclass(frozen=True, slots=True)
class Result:
    """How far a run has come. Metrics are rounded to 4 significant digits, unless they are integers.

    `from_step`: the step that this attempt continued from; None until training is open.
    `expires_at`: when the backend may delete the state at `state_path`; None when it never may, or this is unknown.
    `stopped_early`: why the last step is not `total_steps`, in a run that is complete all the same.
    `cost`: the run's so far; None without prices.
    `evaluated`: all figures of the newest evaluation, if it has several.
    """

    attempt: int
    total_steps: int
    outcome: Outcome = "running"
    from_step: int | None = None
    steps_trained: int = 0
    training_run_id: str | None = None
    state_path: str | None = None
    sampler_path: str | None = None
    expires_at: datetime | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    best: BestCheckpoint | None = None
    stopped_early: str | None = None
    cost: Mapping[str, Any] | None = None
    evaluated: EvaluatedFigures | None = None
    error: ResultError | None = None

    def to_json(self) -> bytes:
        """The wire form, at most MAX_BYTES: figures of the evaluation are dropped first, then metrics, and the message
        is cut before a path is lost.
        """
        if self.evaluated is not None and len(orjson.dumps(self.to_wire())) > MAX_BYTES:
            return replace(self, evaluated=self.evaluated.shorter).to_json()
        weights = {name: weight for weight, name in enumerate(_METRICS_BY_WEIGHT)}
        names = sorted(self.metrics, key=lambda name: weights.get(name, len(weights)))
        encoded = orjson.dumps(self.to_wire())
        while len(encoded) > MAX_BYTES and names:
            names.pop()
            metrics = {name: value for name, value in self.metrics.items() if name in names}
            encoded = orjson.dumps(replace(self, metrics=metrics).to_wire())
        if len(encoded) > MAX_BYTES and self.error is not None:
            lengths = range(len(self.error.message))
            fitting = bisect_right(lengths, MAX_BYTES, key=lambda length: len(self._with_message_of(length)))
            encoded = self._with_message_of(max(0, fitting - 1))
        return encoded

    def _with_message_of(self, length: int) -> bytes:
        """Without metrics, the error's message cut to `length` characters (which may take six bytes each)."""
        assert self.error is not None
        error = replace(self.error, message=self.error.message[:length] + "~")
        return orjson.dumps(replace(self, metrics={}, error=error).to_wire())

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "schema": SCHEMA,
            "outcome": self.outcome,
            "attempt": self.attempt,
            "fromStep": self.from_step,
            "stepsTrained": self.steps_trained,
            "totalSteps": self.total_steps,
            "trainingRunId": self.training_run_id,
            "statePath": self.state_path,
            "samplerPath": self.sampler_path,
            "checkpoint": {"expiresAt": timestamp(self.expires_at)},
            "metrics": {name: rounded(value) for name, value in self.metrics.items()},
        }
        if self.best is not None:
            wire["best"] = self.best.to_wire()
            for name in ("statePath", "samplerPath"):  # of the last weights: said already, and space is short
                if wire["best"][name] == wire[name]:
                    del wire["best"][name]
        if self.stopped_early is not None:
            wire["stoppedEarly"] = self.stopped_early
        if self.cost is not None:
            wire["cost"] = self.cost
        if self.evaluated is not None:
            wire["evaluation"] = self.evaluated.to_wire()
        if self.error is not None:
            wire["error"] = {"class": self.error.error_class, "message": self.error.message}
        return wire


def rounded(value: float) -> float:
    """Integers stay exact: counts and steps, also as floats."""
    return value if isinstance(value, int) or value.is_integer() else float(f"{value:.4g}")


def write_result(path: str | None, result: Result) -> None:
    """Write in place (in a pod the file is a bind mount, which a rename cannot replace). None: write nothing."""
    if path is None:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        encoded = result.to_json()
        os.pwrite(descriptor, encoded, 0)
        os.ftruncate(descriptor, len(encoded))
    finally:
        os.close(descriptor)


def write_reason(path: str | None, reason: str) -> None:
    """Why the process failed, in the form that its log has as text, whatever format the log has. A result stays."""
    if path is None:
        return
    with contextlib.suppress(OSError), Path(path).open("ab") as file:  # the log has it, too
        if not file.tell():
            fitting = f"error: {' '.join(reason.split())}".encode()[:MAX_BYTES]
            file.write(fitting.decode(errors="ignore").encode())  # without a part of a character at its end


class ResultFile:
    """Holds the result; nothing is written before the first `write`, because a start has nothing to report yet."""

    def __init__(self, path: str | None, result: Result) -> None:
        self._path = path
        self.result = result
        self.cost: Callable[[], Mapping[str, Any] | None] = lambda: None
        self.evaluated: Callable[[], EvaluatedFigures | None] = lambda: None

    def write(self, **changes: Any) -> None:
        self.result = replace(self.result, cost=self.cost(), evaluated=self.evaluated(), **changes)
        write_result(self._path, self.result)

    def write_failure(self, error: RunError, metrics: Mapping[str, float] | None = None) -> None:
        """`metrics`: the last ones that are known; None: those of the last checkpoint stay."""
        known = self.result.metrics if metrics is None else dict(metrics)
        self.write(outcome="failed", error=ResultError(error.error_class, str(error)), metrics=known)
