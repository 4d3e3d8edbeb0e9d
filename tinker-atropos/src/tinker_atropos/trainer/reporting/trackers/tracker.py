"""What the trainer asks of a tracker, and what every tracker shows of a run."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.reporting.samples import Row

SUCCESSES = ("succeeded", "stopped")
"""The outcomes of a result that are no failure."""


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


def described(settings: Settings, config: RunConfig) -> dict[str, Any]:
    """The run's config, where it runs, and the weights that it started from."""
    place = {"name": settings.run_name, "namespace": settings.run_namespace, "uid": settings.run_uid}
    return {**config.model_dump(mode="json"), "run": place, **_start(settings)}


def _start(settings: Settings) -> dict[str, Any]:
    """The state that the run started from, and which run saved it."""
    if settings.start_from is None:
        return {}
    parent = settings.parent
    return {
        "start_from": {
            "run": parent.run,
            "step": parent.step,
            "state_path": settings.start_from,
            "wandb_url": parent.wandb_url,
        }
    }
