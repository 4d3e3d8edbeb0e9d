"""What the pollers know, as a target's `MetricsSource`."""

import asyncio

from rl_operator.api.training_run import TrainingRun
from rl_operator.metrics.trainer_poller import TrainerPoller
from rl_operator.metrics.wandb_poller import WandbPoller
from rl_operator.status.observed.attempt_metrics import AttemptMetrics
from rl_operator.status.observed.history import Point
from rl_operator.status.observed.observation import PodObservation


class PolledMetrics:
    """Implements `status.observed.attempt_metrics.MetricsSource`. Without a poller nothing is known from W&B."""

    def __init__(self, trainers: TrainerPoller, wandb: WandbPoller | None = None) -> None:
        self._trainers = trainers
        self._wandb = wandb

    async def run(self) -> None:
        """Poll forever; ends only by cancellation."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._trainers.run())
            if self._wandb:
                group.create_task(self._wandb.run())

    def attempt_metrics(self, run: TrainingRun, pod: PodObservation) -> AttemptMetrics:
        has_history = self._trainers.has_points(pod)
        if pod.over:
            return AttemptMetrics(has_history=has_history)
        return AttemptMetrics(
            trainer=self._trainers.status_of(pod),
            unreachable=self._trainers.unreachable(pod),
            unheard=self._trainers.unheard(pod),
            wandb=self._wandb.run_of(run) if self._wandb else None,
            has_history=has_history,
        )

    def points(self, pod: PodObservation) -> tuple[Point, ...]:
        return self._trainers.points(pod)
