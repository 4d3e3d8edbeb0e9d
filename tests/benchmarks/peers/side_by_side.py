"""What runs of both sides came to: the held-out share of right answers by sampled tokens and by CPU seconds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final, Literal

import numpy as np

Side = Literal["ours", "ours, every group", "TRL"]
SIDES: Final[tuple[Side, ...]] = ("ours", "ours, every group", "TRL")
"""Ours drops groups of equal rewards and samples others for them, up to a limit, unless told to train every group, as
TRL does.
"""

COSTS: Final = (("tokens", "sampled tokens", ",.0f"), ("cpu", "CPU seconds", ".1f"))
"""Fields of a point, with their format."""

GAIN: Final = 0.8
"""The share of the best gain that is to be reached."""

ROW: Final = "  {:<36} {:>26} {:>26} {:>26}"


REPLACED: Final = 4
"""The default of `trainer.max_all_right_replaced`."""


@dataclass(frozen=True, slots=True)
class RunKey:
    """`replaced`: of "ours", the `trainer.max_all_right_replaced`."""

    side: Side
    task: str
    seed: int
    steps: int
    replaced: int = REPLACED


@dataclass(frozen=True, slots=True)
class Point:
    """After so many steps: what was spent since sampling began, and the held-out share of right answers."""

    step: int
    tokens: float
    cpu: float
    right: float


@dataclass(frozen=True, slots=True)
class SideRun:
    """A run. `start_up`: CPU seconds before sampling began."""

    key: RunKey
    start_up: float
    points: Sequence[Point]
    by_role: Mapping[str, float] = field(default_factory=dict)

    def at(self, cost: str, spent: float) -> float:
        """Held-out when so much was spent, between the points of the curve."""
        return float(np.interp(spent, [getattr(each, cost) for each in self.points], [e.right for e in self.points]))

    def reaches(self, right: float, cost: str) -> float | None:
        """What was spent when it was first so good."""
        for before, after in zip(self.points, self.points[1:], strict=False):
            if after.right >= right:
                spent = [getattr(before, cost), getattr(after, cost)]
                return float(np.interp(right, [before.right, after.right], spent))
        return None


def table(runs: Sequence[SideRun]) -> Iterator[str]:
    """Of one task. Means of the seeds, with the lowest and the highest."""
    sides = [[run for run in runs if run.key.side == side] for side in SIDES]
    seeds = ", ".join(str(len(side)) for side in sides)
    before, best = runs[0].points[0].right, max(point.right for run in runs for point in run.points)
    goal = before + GAIN * (best - before)
    yield f"{runs[0].key.task}: held-out {before:.3f} before training; {seeds} seeds"
    yield ROW.format("", *SIDES)
    last = [[run.points[-1] for run in side] for side in sides]
    yield ROW.format("steps", *(_spread([p.step for p in side], ".0f") for side in last))
    yield ROW.format("held-out after them", *(_spread([p.right for p in side], ".3f") for side in last))
    yield ROW.format("  sampled tokens", *(_spread([p.tokens for p in side], ",.0f") for side in last))
    yield ROW.format("  CPU seconds", *(_spread([p.cpu for p in side], ".1f") for side in last))
    per_token = [[1000 * p.cpu / p.tokens for p in side] for side in last]
    yield ROW.format("  CPU ms per sampled token", *(_spread(side, ".2f") for side in per_token))
    yield ROW.format("  CPU seconds before, to start", *(_spread([r.start_up for r in side], ".1f") for side in sides))
    for cost, name, style in COSTS:
        equal = min(getattr(run.points[-1], cost) for run in runs)
        shares = [[run.at(cost, equal) for run in side] for side in sides]
        yield ROW.format(f"held-out at {equal:{style}} {name}", *(_spread(side, ".3f") for side in shares))
    for cost, name, style in COSTS:
        reached = [[run.reaches(goal, cost) for run in side] for side in sides]
        yield ROW.format(f"{name} to a held-out of {goal:.3f}", *(_spread(side, style) for side in reached))


def _spread(values: Sequence[float | None], style: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "never"
    lowest, mean, highest = (format(each, style) for each in (min(known), fmean(known), max(known)))
    some = "" if len(known) == len(values) else f", {len(known)} of {len(values)}"
    return f"{mean}{some}" if lowest == highest else f"{mean} ({lowest} to {highest}{some})"
