"""What a run's page says below its curves: weights, attempts, conditions. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from rl_operator.api.run import TrainingRun
from rl_operator.ui.views.short_text import short


@dataclass(frozen=True, slots=True)
class WeightsRow:
    what: str
    path: str
    use: str
    expires: str


@dataclass(frozen=True, slots=True)
class AttemptRow:
    number: int
    pod: str
    from_step: int
    steps: int
    ended: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConditionRow:
    type: str
    status: str
    since: str
    reason: str
    message: str


def weights_rows(run: TrainingRun) -> Iterator[WeightsRow]:
    status = run.status
    if weights := status.weights:
        until = short(weights.expires_at or "")
        yield WeightsRow("final", short(weights.sampler_path), "sample from", until)
        if weights.state_path:
            yield WeightsRow("final", short(weights.state_path), "train on from", until)
    if best := status.best:
        name, until = f"best, step {best.step}", short(best.expires_at or "")
        yield WeightsRow(name, short(best.sampler_path), "sample from (--best)", until)
        yield WeightsRow(name, short(best.state_path), "train on from", until)
    if checkpoint := status.checkpoint:
        name, until = f"checkpoint, step {checkpoint.step}", short(checkpoint.expires_at or "")
        yield WeightsRow(name, short(checkpoint.state_path), "train on from", until)


def attempt_rows(run: TrainingRun) -> Iterator[AttemptRow]:
    for each in run.status.attempts:
        pod, ended, reason = map(short, (each.pod, each.ended or "–", each.reason or "–"))
        yield AttemptRow(each.attempt, pod, each.from_step, each.steps, ended, reason)


def condition_rows(run: TrainingRun) -> Iterator[ConditionRow]:
    for each in run.status.conditions:
        yield ConditionRow(
            short(each.type), each.status, short(each.last_transition_time), short(each.reason), short(each.message)
        )
