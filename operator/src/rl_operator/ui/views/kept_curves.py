"""Curves of a run of which only the kept history is left. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from rl_operator.rollouts.metrics_history import NOT_KNOWN

Point = Mapping[str, float]
KeptTable = tuple[list[int], list[float], dict[str, list[float]]]
"""Steps, times (not known) and columns, as `rollouts.metrics_history` has them."""

KEPT: Final = {"reward": "rewardMean", "loss": "loss", "staleness": "staleness"}


def kept_tables(points: Sequence[Point]) -> dict[str, KeptTable]:
    """A point repeats the newest held-out figure: an evaluation is where it changes."""
    columns = {column: [point.get(name, NOT_KNOWN) for point in points] for column, name in KEPT.items()}
    evaluated = _evaluations(points)
    return {
        "steps": ([int(point["step"]) for point in points], [NOT_KNOWN] * len(points), columns),
        "evaluations": (
            [int(point["step"]) for point in evaluated],
            [NOT_KNOWN] * len(evaluated),
            {"held_out": [point["evalAccuracy"] for point in evaluated]},
        ),
    }


def _evaluations(points: Sequence[Point]) -> list[Point]:
    found: list[Point] = []
    for point in points:
        if "evalAccuracy" in point and (not found or found[-1]["evalAccuracy"] != point["evalAccuracy"]):
            found.append(point)
    return found
