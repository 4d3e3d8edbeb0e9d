"""Metrics as given by a test, by pod name."""

from dataclasses import dataclass, field

from rl_operator.api.training_run import TrainingRun
from rl_operator.status.observed.attempt_metrics import AttemptMetrics
from rl_operator.status.observed.history import Point
from rl_operator.status.observed.observation import ObservedTrainer, PodObservation


@dataclass
class ToldMetrics:
    """A `MetricsSource`: trainers' answers and known histories."""

    trainers: dict[str, ObservedTrainer] = field(default_factory=dict)
    histories: dict[str, tuple[Point, ...]] = field(default_factory=dict)

    def attempt_metrics(self, run: TrainingRun, pod: PodObservation) -> AttemptMetrics:
        assert pod.run_uid == run.metadata.uid
        trainer = None if pod.over else self.trainers.get(pod.name)
        return AttemptMetrics(trainer=trainer, has_history=pod.name in self.histories)

    def points(self, pod: PodObservation) -> tuple[Point, ...]:
        return self.histories.get(pod.name, ())
