"""The metrics of a run's status. One entry each: its name, its meaning, and where it comes from.

The trainer's `/status`, `/history` and result, what is read from W&B's summary, the kept history, the CRD and its page
are derived from here.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal, Self, TypeGuard

from pydantic import Field
from pydantic.alias_generators import to_camel

from rl_contract.wire import WireModel

Reduction = Literal["step", "mean", "evaluation", "baseline"]
"""How values become the one that is shown: of the newest step's batch (unknown if that step does not say it), the mean
of what each environment said last, of the newest evaluation, or of the one before training. Values of one evaluation
hold together: a newer one replaces all of them.
"""

LARGEST: Final = 1e300
"""JSON has no infinity, and Python's integers are unbounded."""


@dataclass(frozen=True, slots=True)
class Origin:
    """`metrics`: names, or patterns of names, in the table of metrics, as W&B has them. `history`: each point of the
    kept history has it, too. `weight`: a result that has no room for all keeps the heaviest.
    """

    metrics: tuple[str, ...]
    reduction: Reduction
    history: bool = False
    weight: int = 0

    def matches(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.metrics)


_FIGURE: Final = "eval/percent_correct"
_LOW: Final = f"{_FIGURE}_low"
_HIGH: Final = f"{_FIGURE}_high"
_SAMPLES: Final = "eval/n"
_LOW_END: Final = "Lower end of its 95 % interval."
_HIGH_END: Final = "Upper end of its 95 % interval."
_BEHIND: Final = "Samples behind it."


class RunMetrics(WireModel):
    """The latest metrics; fractions are 0 to 1, rounded to 4 digits. Advisory: the phase never depends on them."""

    reward_mean: Annotated[
        float | None, Origin(("env/reward_mean", "env_*/reward_mean"), "mean", history=True, weight=5)
    ] = Field(default=None, description="Mean reward over all groups, also filtered ones.")
    train_accuracy: Annotated[float | None, Origin(("*train/percent_correct",), "mean", history=True)] = Field(
        default=None, description="Fraction of rollouts that were correct."
    )
    eval_accuracy: Annotated[float | None, Origin((_FIGURE,), "evaluation", history=True, weight=8)] = Field(
        default=None, description="Latest held-out evaluation."
    )
    eval_step: Annotated[int | None, Origin((), "evaluation", weight=7)] = Field(
        default=None, description="The step whose weights it evaluated."
    )
    eval_accuracy_low: Annotated[float | None, Origin((_LOW,), "evaluation", weight=4)] = Field(
        default=None, description=_LOW_END
    )
    eval_accuracy_high: Annotated[float | None, Origin((_HIGH,), "evaluation", weight=3)] = Field(
        default=None, description=_HIGH_END
    )
    eval_accuracy_n: Annotated[int | None, Origin((_SAMPLES,), "evaluation")] = Field(default=None, description=_BEHIND)
    baseline_accuracy: Annotated[float | None, Origin((_FIGURE,), "baseline", weight=6)] = Field(
        default=None, description="Held-out evaluation before training."
    )
    baseline_accuracy_low: Annotated[float | None, Origin((_LOW,), "baseline", weight=2)] = Field(
        default=None, description=_LOW_END
    )
    baseline_accuracy_high: Annotated[float | None, Origin((_HIGH,), "baseline", weight=1)] = Field(
        default=None, description=_HIGH_END
    )
    baseline_accuracy_n: Annotated[int | None, Origin((_SAMPLES,), "baseline")] = Field(
        default=None, description=_BEHIND
    )
    loss: Annotated[float | None, Origin(("train/loss",), "step", history=True)] = Field(
        default=None, description="Mean loss per trained token."
    )
    learning_rate: Annotated[float | None, Origin(("train/learning_rate",), "step")] = Field(
        default=None, description="Adam's learning rate, as its schedule and `auto` make it."
    )
    logprob_gap: Annotated[float | None, Origin(("logprobs/gap",), "step", history=True)] = Field(
        default=None, description="Mean absolute gap between sampling and training logprobs, staleness 0."
    )
    staleness: Annotated[float | None, Origin(("staleness/mean",), "step", history=True)] = Field(
        default=None, description="Mean policy steps between sampling and training."
    )
    source: str | None = Field(default=None, description="Where the metrics come from: trainer, result or wandb.")
    observed_at: str | None = Field(default=None, description="When they were read.")

    @classmethod
    def of_numbers(cls, numbers: Mapping[str, object]) -> Self:
        """From values under the names of the wire. What is not a finite number, or not a count where one is due, is
        left out: an environment may report anything.
        """
        known = {name: numbers.get(wire_name(name)) for name in ORIGINS}
        return cls.model_validate({name: value for name, value in known.items() if _fits(name, value)})

    def numbers(self) -> dict[str, float]:
        """The inverse, of what is known."""
        values = ((wire_name(name), getattr(self, name)) for name in ORIGINS)
        return {name: value for name, value in values if value is not None}


def _origins() -> Iterator[tuple[str, Origin]]:
    for name, field in RunMetrics.model_fields.items():
        yield from ((name, each) for each in field.metadata if isinstance(each, Origin))


ORIGINS: Final[Mapping[str, Origin]] = dict(_origins())
"""By field of RunMetrics."""

_COUNTS: Final = frozenset(name for name in ORIGINS if RunMetrics.model_fields[name].annotation == int | None)

HISTORY_METRICS: Final = tuple(to_camel(name) for name, origin in ORIGINS.items() if origin.history)
"""A point's fields besides its step, on the wire: a ConfigMap is limited to 1 MiB, and a trainer's own point has a
hundred metrics.
"""

MAX_POINTS: Final = 500
"""Of a run's history, in the trainer and kept."""

BY_WEIGHT: Final = tuple(to_camel(name) for name, origin in sorted(ORIGINS.items(), key=lambda item: -item[1].weight))
"""Names of the wire, the heaviest first."""


def reduced(*reductions: Reduction) -> dict[str, Origin]:
    """The metrics of these kinds, by field."""
    return {name: origin for name, origin in ORIGINS.items() if origin.reduction in reductions}


def wire_name(name: str) -> str:
    """`rewardMean` of `reward_mean`."""
    return to_camel(name)


def is_metric(value: object) -> TypeGuard[float]:
    """A finite number: no text, no NaN, no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def _fits(name: str, value: object) -> bool:
    if not is_metric(value):
        return False
    return name not in _COUNTS or (math.floor(value) == value and 0 <= value < 2**31)
