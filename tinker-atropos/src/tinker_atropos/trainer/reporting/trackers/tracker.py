"""What the trainer asks of a tracker. W&B is the one that there is (`wandb_tracker.py`)."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tinker_atropos.trainer.reporting.samples import Row


class Tracker(Protocol):
    """Takes a run's points without ever waiting for the service behind it, and without raising."""

    def start(self) -> None: ...

    def log_step(self, step: int, metrics: Mapping[str, float], samples: Sequence[Row] = ()) -> None:
        """One trained step, occasionally with a table of sampled rollouts."""

    def log_report(self, step: int | None, metrics: Mapping[str, float]) -> None:
        """What an environment reported; `step` is the environment's, if it gave one."""

    async def close(self, result: Mapping[str, Any]) -> None:
        """Finish the run with the trainer's result (`Result.to_wire`), within a limit of time."""

    def to_wire(self) -> dict[str, Any]:
        """What `/status` says of it."""
