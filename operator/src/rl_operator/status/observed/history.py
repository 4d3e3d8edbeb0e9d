"""The metrics history of a run: a bounded number of points over all its attempts.

A point is `{"step": 12, "rolloutReward": 0.71, …}` with the status' names, rounded to 4 significant digits. An attempt
begins at its checkpoint: what earlier ones trained beyond it was lost, and so are their points from there on.

Also what counts as a number: others wrote it, and it goes into objects that users and programs read.
"""

from collections.abc import Iterable, Mapping, Sequence

from rl_contract.status_metrics import (
    HISTORY_METRICS,
    MAX_POINTS,
    EvaluatedFigure,
    RunMetrics,
    is_metric,
    round_metric,
    wire_name,
)
from rl_contract.trainer_messages import TrainerResult
from rl_operator.api.status_fields import RunStatus
from rl_operator.api.training_run import TrainingRun

Point = Mapping[str, float]


def history_map_name(run: TrainingRun) -> str:
    """The ConfigMap's name: with the uid, so that a run that was deleted and applied again has its own."""
    return f"{run.metadata.name}-{run.metadata.uid[:5]}-history"


def read_points(document: object) -> tuple[Point, ...]:
    """The points of a trainer's `/history`, or of a stored history: `{"points": […]}`. Invalid points are left out."""
    points = document.get("points") if isinstance(document, dict) else None
    found = [_point(each) for each in points if isinstance(each, dict)] if isinstance(points, list) else []
    return tuple(sorted((point for point in found if point), key=_step))


def extended(points: Sequence[Point], result: TrainerResult | None, status: RunStatus) -> tuple[Point, ...]:
    """An attempt's points, with the result's if it is newer than the trainer's last reported one.

    The last one has the reward of the status, which followed what environments reported after that step: a run has one
    last reward.
    """
    if result is not None and (not points or result.steps_trained > _step(points[-1])):
        points = (*points, *_points_of(result.steps_trained, result.metrics))
    reward, progress = status.metrics.rollout_reward if status.metrics else None, status.progress
    if not points or reward is None or progress is None or progress.step != _step(points[-1]):
        return tuple(points)
    return (*points[:-1], {**points[-1], "rolloutReward": reward})


def joined(earlier: Sequence[Point], later: Sequence[Point]) -> tuple[Point, ...]:
    """Two histories joined; the later one begins where the earlier one was left."""
    if not later:
        return tuple(earlier)
    begins = _step(later[0])
    return tuple(point for point in earlier if _step(point) < begins) + tuple(later)


def thinned(points: Sequence[Point], most: int = MAX_POINTS) -> tuple[Point, ...]:
    """At most this many points: those of every 2nd, 4th, … step, as the trainer does, and the last one."""
    stride, kept = 1, list(points)
    while len(kept) > most:
        stride *= 2
        kept = [point for point in points[:-1] if _step(point) % stride == 0] + [points[-1]]
    return tuple(kept)


def rewards(points: Iterable[Point]) -> list[float]:
    """The reward curve."""
    return [point["rolloutReward"] for point in points if "rolloutReward" in point]


def _point(raw: Mapping[str, object]) -> Point | None:
    step = raw.get("step")
    if not isinstance(step, int) or not is_metric(step) or step < 0:
        return None
    metrics = ((name, raw.get(name)) for name in HISTORY_METRICS)
    return {"step": step, **{name: round_metric(value) for name, value in metrics if is_metric(value)}}


def _points_of(step: int, metrics: RunMetrics) -> tuple[Point, ...]:
    numbers = {
        wire_name(name): value.value if isinstance(value, EvaluatedFigure) else value
        for name, value in metrics.known.items()
    }
    return read_points({"points": [{"step": step, **numbers}]})


def _step(point: Point) -> float:
    return point["step"]
