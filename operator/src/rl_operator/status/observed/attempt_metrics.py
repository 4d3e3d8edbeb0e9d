"""What is known about an attempt's metrics at one moment, and what a target provides for it."""

from dataclasses import dataclass
from typing import Protocol

from rl_operator.api.training_run import TrainingRun
from rl_operator.status.observed.history import Point
from rl_operator.status.observed.observation import ObservedTrainer, PodObservation
from rl_operator.status.observed.wandb_run import WandbRun


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptMetrics:
    """Advisory, all of it. `unreachable`: the trainer does not respond to us, though it was ready when it was asked;
    `unheard`: it starts, or has started, and has not responded yet; `has_history`: points of its history are available.
    """

    trainer: ObservedTrainer | None = None
    unreachable: bool = False
    unheard: bool = False
    wandb: WandbRun | None = None
    has_history: bool = False


class MetricsSource(Protocol):
    """Answers from memory: a separate poller fetches at its own pace."""

    def attempt_metrics(self, run: TrainingRun, pod: PodObservation) -> AttemptMetrics: ...

    def points(self, pod: PodObservation) -> tuple[Point, ...]:
        """The attempt's history, as far as it was read; kept until the pod's finalizer is removed."""
        ...
