"""What the programs of trackers share: points are read as JSON lines from stdin, whose end finishes the run; states are
written as JSON lines to stdout.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from tinker_atropos.trainer.reporting.trackers.step_axis import StepAxis

NICE = 10
"""A tracker's processes yield to the trainer where they share its cores."""

SAMPLES_KEY = "samples"

_TELLING = os.fdopen(os.dup(1), "wb", buffering=0)
"""Our own standard output: processes that a tracker starts would inherit fd 1, and keep it open after this process has
exited.
"""


class Recording(Protocol):
    """An open run of a tracker."""

    def log(self, point: Mapping[str, Any]) -> None:
        """Log metrics at the point's `STEP_KEY`."""

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> Any:
        """A value of a point."""

    def conclude(self, summary: Mapping[str, Any]) -> None:
        """Log what the run ended with."""


def take_the_background(stdout: int) -> None:
    """Send what a tracker's package prints to `stdout`, and yield to the trainer."""
    os.dup2(stdout, 1)
    os.nice(NICE)


def tell(**told: str | None) -> None:
    _TELLING.write(json.dumps(told).encode() + b"\n")


def tell_failure(error: Exception) -> None:
    tell(failure=f"{type(error).__name__}: {error}".splitlines()[0])


def follow(lines: Iterable[bytes], axis: StepAxis, run: Recording, where: str) -> int:
    """Log what arrives; returns the exit code that the run ends with: 1, unless a message sets another. `where` names
    the tracker.
    """
    exit_code = 1
    for line in lines:
        match json.loads(line):
            case {"step": step, "metrics": metrics, "samples": samples}:
                _log_step(axis.trained(step, metrics), samples, run, step)
            case {"reported_step": step, "metrics": metrics}:
                if (reported := axis.reported(step, metrics)) is not None:
                    run.log(reported)
            case {"summary": summary, "exit_code": exit_code}:
                run.conclude(summary)
    if axis.replayed:
        tell(note=f"{axis.replayed} points are in {where} since they were first trained: not logged again")
    return exit_code


def _log_step(
    trained: Mapping[str, float] | None, samples: Mapping[str, Any] | None, run: Recording, step: int
) -> None:
    if trained is not None:
        table = {SAMPLES_KEY: run.table(samples["columns"], samples["data"], step)} if samples else {}
        run.log({**trained, **table})
