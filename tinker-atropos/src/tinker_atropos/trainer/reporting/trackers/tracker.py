"""What the trainer asks of a tracker, and the rows of samples that it gets. W&B is the one that there is
(`wandb_tracker.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tinker_atropos.chat.sampling import Ints
from tinker_atropos.trainer.data.datums import Datum, TrainingBatch

COLUMNS = ("step", "prompt", "completion", "score", "advantage", "policy_step")
ROWS = 8
MAX_TEXT = 4_000
"""Maximum characters of a cell; a longer text keeps its beginning and its end."""

Row = tuple[int, str, str, float, float, int]
Decode = Callable[[Ints], str]


def sample_rows(step: int, batch: TrainingBatch, decode: Decode, count: int = ROWS) -> list[Row]:
    """Rows of COLUMNS, spread evenly from the lowest to the highest score of what the step trained on."""
    datums = sorted(batch.datums, key=lambda datum: datum.score)
    chosen = sorted(set(np.linspace(0, len(datums) - 1, min(count, len(datums))).round().astype(int).tolist()))
    return [_row(step, datums[index], decode) for index in chosen]


def _row(step: int, datum: Datum, decode: Decode) -> Row:
    """The completion begins with the first trained token: position t predicts token t + 1."""
    begin = int(datum.trained_T.argmax()) + 1
    tokens_T, trained_T = datum.tokens_T, datum.trained_T
    return (
        step,
        _shortened(decode(tokens_T[:begin])),
        _shortened(decode(tokens_T[begin:])),
        datum.score,
        float(datum.advantages_T[trained_T].mean()),
        int(datum.policy_step_T[trained_T].min()),
    )


def _shortened(text: str) -> str:
    half = MAX_TEXT // 2
    return text if len(text) <= MAX_TEXT else f"{text[:half]} … {text[-half:]}"


class Tracker(Protocol):
    """Takes a run's points without ever waiting for the service behind it, and without raising."""

    def start(self) -> None: ...

    def log_step(self, step: int, metrics: Mapping[str, float], samples: Sequence[Row] = ()) -> None:
        """One trained step, occasionally with a table of sampled rollouts."""

    def log_report(self, step: int | None, metrics: Mapping[str, float]) -> None:
        """What an environment reported; `step` is the environment's, if it gave one."""

    async def close(self, result: Mapping[str, Any]) -> None:
        """Finish the run with the trainer's result (`Result.to_wire`), within a limit of time."""

    def to_wire(self) -> dict[str, object]:
        """What `/status` says of it."""
