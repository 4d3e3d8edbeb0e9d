"""What W&B knows about a run, and how its summary's names map to metrics. Advisory: the pod always takes precedence.

Which metric is which figure, the contract says (`rl_contract/status_metrics.py`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rl_contract.status_metrics import (
    HELD_OUT_METRIC,
    MAX_STEPS,
    EvaluatedFigure,
    RunMetrics,
    is_metric,
    reduced,
    wire_name,
)
from rl_contract.trainer_messages import WandbStatus
from rl_operator.api.training_run import TrainingRun

STEP: Final = "train/step"
SECONDS_PER_STEP: Final = "time/step"

BESIDE: Final = "; W&B says "
"""Separates the trainer's report on its W&B run from W&B's own state."""

NOT_THERE: Final = ("disabled", "offline")
"""How the trainer's report begins if W&B has nothing from this attempt."""


PASSING: Final = ("starting", "running")
"""What the trainer reports while it runs."""


@dataclass(frozen=True, slots=True)
class WandbRun:
    """W&B's own state of the run (running, finished, crashed, failed, …) and the metrics of its summary."""

    state: str
    step: int | None = None
    seconds_per_step: float | None = None
    metrics: RunMetrics = field(default_factory=RunMetrics)


def is_current(run: TrainingRun) -> bool:
    """Whether W&B's figures are the current attempt's: only a first one's are for certain. All attempts have one run at
    W&B, whose axis never goes back: until a later attempt is beyond what the others logged, W&B's step is theirs, also
    if its weights are lost, and an evaluation of theirs may stay longer. W&B does not say which attempt a figure is
    from.
    """
    return run.status.attempt == 1


def read_wandb_run(state: str, summary: Mapping[str, object]) -> WandbRun:
    """Project a summary to what a status shows; anything but finite numbers is left out."""
    numbers = {name: value for name, value in summary.items() if is_metric(value)}
    known = dict[str, float]()
    for figure, origin in reduced("step", "mean").items():  # over several environments, as the trainer takes it
        values = [value for name, value in numbers.items() if origin.matches(name)]
        if values:
            known[wire_name(figure)] = sum(value / len(values) for value in values)  # a sum might be too large
    return WandbRun(
        state=state,
        step=_count(numbers, STEP),
        seconds_per_step=numbers.get(SECONDS_PER_STEP),
        metrics=RunMetrics.of_numbers(known).with_changes(held_out=_held_out(numbers)),
    )


def parse_summary(text: str | None) -> Mapping[str, object]:
    """`summaryMetrics` as W&B sends it: JSON in a string. Anything else is an empty summary."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def wandb_status(told: WandbStatus | None, own: WandbRun, run_id: str) -> WandbStatus:
    """W&B's state next to the trainer's report; an offline run keeps the sentence that says how to upload it."""
    told = told or WandbStatus(run_id=run_id)
    word = (told.state or "").partition(BESIDE)[0]
    if word.startswith(NOT_THERE) or word == own.state:
        return told.with_changes(state=word)
    return told.with_changes(state=f"{word}{BESIDE}{own.state}" if word else own.state)


def at_the_end(known: WandbStatus) -> WandbStatus:
    """Once polling has ended: whether it runs is no longer known, but W&B's last state is."""
    word, _, own = (known.state or "").partition(BESIDE)
    return known.with_changes(state=own or None) if word in PASSING else known


def _held_out(numbers: Mapping[str, float]) -> EvaluatedFigure | None:
    """The held-out figure, whose name may have an environment's prefix; of several, the one with the shortest name."""
    names = sorted((name for name in numbers if name.endswith(HELD_OUT_METRIC)), key=lambda name: (len(name), name))
    found = EvaluatedFigure.found(numbers, names[0]) if names else None
    return found and found.with_changes(metric=HELD_OUT_METRIC)


def _count(numbers: Mapping[str, float], name: str) -> int | None:
    value = numbers.get(name)
    return int(value) if value is not None and 0 <= value <= MAX_STEPS else None
