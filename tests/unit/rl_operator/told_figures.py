"""Figures as a test says them, by the name of the pod."""

from dataclasses import dataclass, field

from rl_operator.api.run import TrainingRun
from rl_operator.status.attempt_metrics import AttemptMetrics
from rl_operator.status.history import Point
from rl_operator.status.observation import PodObservation, TrainerStatus


@dataclass
class ToldFigures:
    """A `FigureSource`: what trainers answer, and the series that are at hand."""

    trainers: dict[str, TrainerStatus] = field(default_factory=dict)
    series: dict[str, tuple[Point, ...]] = field(default_factory=dict)

    def figures(self, run: TrainingRun, pod: PodObservation) -> AttemptMetrics:
        assert pod.run_uid == run.metadata.uid
        trainer = None if pod.over else self.trainers.get(pod.name)
        return AttemptMetrics(trainer=trainer, series=pod.name in self.series)

    def points(self, pod: PodObservation) -> tuple[Point, ...]:
        return self.series.get(pod.name, ())
