"""Writes the trainer's result: the container's termination message, bounded.

The other processes have no result; they leave behind why they failed.
"""

import contextlib
import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import orjson

from rl_contract.status_metrics import RunMetrics
from rl_contract.trainer_messages import (
    MAX_BYTES,
    EvaluatedFigures,
    ItemAccount,
    ResultError,
    RunCost,
    TrainerResult,
)
from tinker_atropos.disk_room import FULL_SECONDS, WAITED_FOR, error_sentence
from tinker_atropos.errors import InternalError, RunError

logger = logging.getLogger(__name__)


def encoded(result: TrainerResult) -> bytes:
    """The wire form, at most MAX_BYTES: figures of the evaluation are dropped first, then the items, then metrics, and
    the message is cut before a path is lost. Metrics are rounded to 4 significant digits, unless they are integers.
    """
    if result.evaluation is not None and len(_dumped(result)) > MAX_BYTES:
        return encoded(result.with_changes(evaluation=result.evaluation.shorter))
    if result.items is not None and len(_dumped(result)) > MAX_BYTES:
        return encoded(result.with_changes(items=None))
    fitting = _dumped(result)
    if len(fitting) > MAX_BYTES and (lighter := result.metrics.lighter) is not None:
        return encoded(result.with_changes(metrics=lighter))
    if len(fitting) > MAX_BYTES and result.error is not None:
        lengths = range(len(result.error.message))
        most = bisect_right(lengths, MAX_BYTES, key=lambda length: len(_with_message_of(length, result)))
        fitting = _with_message_of(max(0, most - 1), result)
    return fitting


def _with_message_of(length: int, result: TrainerResult) -> bytes:
    """Without metrics, the error's message cut to `length` characters (which may take six bytes each)."""
    assert result.error is not None
    error = result.error.with_changes(message=result.error.message[:length] + "~")
    return _dumped(result.with_changes(metrics=RunMetrics(), error=error))


def _dumped(result: TrainerResult) -> bytes:
    return orjson.dumps(wire_form(result))


def wire_form(result: TrainerResult) -> dict[str, object]:
    """Rounded, and without what is said twice. Nothing is cut."""
    return result.with_changes(metrics=result.metrics.rounded).compact.to_wire()


def write_result(path: str | None, result: TrainerResult) -> None:
    """Write in place (in a pod the file is a bind mount, which a rename cannot replace). None: write nothing."""
    if path is None:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        content = encoded(result)
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
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

    def __init__(self, path: str | None, result: TrainerResult) -> None:
        self._path = path
        self.result = result
        self.cost: Callable[[], RunCost | None] = lambda: None
        self.evaluation: Callable[[], EvaluatedFigures | None] = lambda: None
        self.items: Callable[[], ItemAccount | None] = lambda: None

    def hold(self, **changes: object) -> None:
        """Change the result; it is written with the next `write`."""
        self.result = self.result.with_changes(**changes)

    def write(self, **changes: object) -> None:
        """On a full disk the result of a checkpoint comes with the next one; that of the end waits for room."""
        self.hold(cost=self.cost(), evaluation=self.evaluation(), items=self.items(), **changes)
        while True:
            try:
                return write_result(self._path, self.result)
            except OSError as error:
                sentence = f"the result cannot be written: {error_sentence(error)}"
                if error.errno not in WAITED_FOR:
                    raise InternalError(sentence) from error
                logger.warning("%s", sentence)
            if self.result.outcome == "running":
                return None
            time.sleep(FULL_SECONDS)

    def write_failure(self, error: RunError, metrics: RunMetrics | None = None) -> None:
        """`metrics`: the last ones that are known; None: those of the last checkpoint stay."""
        told = ResultError(error_class=error.error_class, message=str(error))
        self.write(outcome="failed", error=told, metrics=self.result.metrics if metrics is None else metrics)
