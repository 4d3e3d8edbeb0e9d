"""What W&B knows about a run, and how its summary's names map to metrics. Advisory: the pod always takes precedence.

The names are those of docs/reference/metrics.md; a test compares them with the table that the page is generated from.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from rl_operator.api.status_fields import RunMetrics, WandbStatus
from rl_operator.api.training_run import TrainingRun
from rl_operator.status.observed.history import is_metric
from rl_operator.status.observed.observation import MAX_STEPS

STEP: Final = "train/step"
SECONDS_PER_STEP: Final = "time/step"

OF_THE_TRAINER: Final[Mapping[str, str]] = {
    "loss": "train/loss",
    "learning_rate": "train/learning_rate",
    "logprob_gap": "logprobs/gap",
    "staleness": "staleness/mean",
}
"""From status field to W&B metric."""

OF_ENVIRONMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "reward_mean": ("env/reward_mean", "env_*/reward_mean"),
    "train_accuracy": ("*train/percent_correct",),
}
"""From status field to patterns: the mean over several environments is taken, as the trainer does."""

EVALUATION: Final = "*eval/percent_correct"
OF_AN_EVALUATION: Final[Mapping[str, str]] = {
    "eval_accuracy": "eval/percent_correct",
    "eval_accuracy_low": "eval/percent_correct_low",
    "eval_accuracy_high": "eval/percent_correct_high",
    "eval_accuracy_n": "eval/n",
}
"""From status field to the end of a metric's name; the part before it is the same in all four."""

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


def read_wandb_run(state: str, summary: Mapping[str, Any]) -> WandbRun:
    """Project a summary to what a status shows; anything but finite numbers is left out."""
    numbers = dict(_numbers(summary))
    known = {figure: numbers[name] for figure, name in OF_THE_TRAINER.items() if name in numbers}
    for figure, patterns in OF_ENVIRONMENTS.items():
        values = [value for name, value in numbers.items() if any(fnmatchcase(name, each) for each in patterns)]
        if values:
            known[figure] = sum(value / len(values) for value in values)  # a sum might be too large for a float
    return WandbRun(
        state=state,
        step=_count(numbers, STEP),
        seconds_per_step=numbers.get(SECONDS_PER_STEP),
        metrics=RunMetrics(**known, **_evaluation(numbers)),
    )


def parse_summary(text: str | None) -> Mapping[str, Any]:
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


def _evaluation(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """One evaluation with its interval; of several, the one with the shortest name."""
    names = sorted((name for name in numbers if fnmatchcase(name, EVALUATION)), key=lambda name: (len(name), name))
    if not names:
        return {}
    prefix = names[0].removesuffix(EVALUATION.removeprefix("*"))
    found = {figure: numbers.get(prefix + end) for figure, end in OF_AN_EVALUATION.items()}
    return found | {"eval_accuracy_n": _count(numbers, prefix + OF_AN_EVALUATION["eval_accuracy_n"])}


def _count(numbers: Mapping[str, float], name: str) -> int | None:
    value = numbers.get(name)
    return int(value) if value is not None and 0 <= value <= MAX_STEPS else None


def _numbers(summary: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in summary.items():
        if is_metric(value):
            yield name, value
