"""The trackers that RL_TRACKER chooses, behind the interface of one."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.reporting.samples import Row
from tinker_atropos.trainer.reporting.trackers.tracker_process import TrackerProcess
from tinker_atropos.trainer.reporting.trackers.trackio_tracker import (
    is_installed,
    trackio_settings,
    trackio_tracker,
    unusable,
)
from tinker_atropos.trainer.reporting.trackers.wandb_tracker import wandb_settings, wandb_tracker


class ChosenTrackers:
    """Implements `Tracker`. W&B is always there, if only to say that it is disabled."""

    def __init__(self, wandb: TrackerProcess, trackio: TrackerProcess | None = None) -> None:
        self._wandb = wandb
        self._trackio = trackio
        self._all = [wandb] if trackio is None else [wandb, trackio]

    def start(self) -> None:
        for tracker in self._all:
            tracker.start()

    def log_step(self, step: int, metrics: Mapping[str, float], samples: Sequence[Row] = ()) -> None:
        for tracker in self._all:
            tracker.log_step(step, metrics, samples)

    def log_report(self, step: int | None, metrics: Mapping[str, float]) -> None:
        for tracker in self._all:
            tracker.log_report(step, metrics)

    async def close(self, result: Mapping[str, Any]) -> None:
        await asyncio.gather(*(tracker.close(result) for tracker in self._all))

    def to_wire(self) -> dict[str, Any]:
        """`wandb`, and `tracker`: Trackio's state, and in `trouble` a sentence on what is not recorded."""
        trackio = self._trackio and {"name": "trackio", **self._trackio.to_wire(), "trouble": self._trackio.trouble}
        return {"wandb": self._wandb.to_wire(), "tracker": trackio}


def chosen_trackers(settings: Settings, config: RunConfig, environ: Mapping[str, str]) -> ChosenTrackers:
    """Those of `settings.trackers`."""
    seconds = settings.wandb_close_seconds
    wandb = wandb_settings(settings, config, environ) if "wandb" in settings.trackers else None
    trackio = None
    if "trackio" in settings.trackers:
        why_not = unusable(environ, installed=is_installed())
        trackio = trackio_tracker(trackio_settings(settings, config), environ, seconds, why_not=why_not)
    return ChosenTrackers(wandb_tracker(wandb, environ, seconds), trackio)
