"""The metrics of a run's status. One entry each: its name, its meaning, where it comes from, and where it is shown.

The trainer's `/status`, `/history` and result, what is read from W&B's summary, the kept history, the CRD and its page
are derived from here.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal, Self, TypeGuard, TypeVar

from pydantic import ConfigDict, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic.alias_generators import to_camel

from rl_contract.wire import WireModel

Reduction = Literal["step", "mean", "evaluation", "baseline"]
"""How values become the one that is shown: of the newest step's batch (unknown if that step does not say it), the mean
of what each environment said last, of the newest evaluation, or of the one before training.
"""

MAX_STEPS: Final = 2**31 - 1
"""Of whatever is counted, too."""

LARGEST: Final = 1e300
"""JSON has no infinity, and Python's integers are unbounded."""


@dataclass(frozen=True, slots=True)
class Origin:
    """`metrics`: names, or patterns of names, in the table of metrics, as W&B has them. `history`: each point of the
    kept history has it, too. `weight`: a result that has no room for all keeps the heaviest; `details`: the weight of
    what a figure says besides its value.
    """

    metrics: tuple[str, ...]
    reduction: Reduction
    history: bool = False
    weight: int = 0
    details: int = 0

    def matches(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.metrics)


View = Literal["line", "details", "page", "tools"]
"""Where metrics are read: a line of a run that is followed, `rlctl get NAME`, a run's page, and answers to agents."""


@dataclass(frozen=True, slots=True)
class Shown:
    """How a metric is read. `label`: in texts, and `form` of a number in them. `key`: in answers to agents; empty: the
    field's name.
    """

    label: str
    form: str = ".3f"
    views: tuple[View, ...] = ("details", "page", "tools")
    key: str = ""


def is_metric(value: object) -> TypeGuard[float]:
    """A finite number: no text, no NaN, no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def round_metric(value: float) -> float:
    """4 significant digits, not decimals: a logprob gap of 2e-6 is not 0. Integers stay exact: counts and steps, also
    as floats.
    """
    return value if isinstance(value, int) or value.is_integer() else float(f"{value:.4g}")


HELD_OUT_METRIC: Final = "eval/percent_correct"
"""The held-out figure of an evaluation. An environment may have another metric in its place."""

EVALUATION_PREFIX: Final = "eval/"
GREEDY_PREFIX: Final = "greedy_"
"""How the last part of a metric begins that is of answers at temperature 0, which have samples of their own."""


class EvaluatedFigure(WireModel):
    """One figure of an evaluation, and how much it says. None: unknown."""

    model_config = ConfigDict(json_schema_extra={"required": ["metric", "value"]})  # whoever writes it says both

    metric: str = Field(
        default=HELD_OUT_METRIC,
        description="Its name in the environment: eval/percent_correct, or what eval_metric chose in its place.",
    )
    value: float = Field(allow_inf_nan=False, description="A fraction, or the score of another metric.")
    low: float | None = Field(default=None, allow_inf_nan=False, description="Lower end of its 95 % interval.")
    high: float | None = Field(default=None, allow_inf_nan=False, description="Upper end of its 95 % interval.")
    samples: int | None = Field(default=None, ge=0, le=MAX_STEPS, description="Samples behind it.")
    step: int | None = Field(default=None, ge=0, le=MAX_STEPS, description="The step whose weights were evaluated.")
    temperature: float | None = Field(
        default=None, allow_inf_nan=False, description="Sampling temperature; left out if unknown or mixed."
    )

    @classmethod
    def found(
        cls, numbers: Mapping[str, float | None], name: str = HELD_OUT_METRIC, step: int | None = None
    ) -> Self | None:
        """The figure of that name among the metrics of one evaluation, rounded; None: there is none, or it is not a
        number. numbers: `eval/SET/pass_at_4`, its ends `…_low` and `…_high`, the samples of the set `eval/SET/n`.
        """
        of_set, _, leaf = name.rpartition("/")
        n = None if leaf.startswith(GREEDY_PREFIX) else numbers.get(f"{of_set}/n")
        value, low, high = (
            round_metric(each) if is_metric(each := numbers.get(name + end)) else None for end in ("", "_low", "_high")
        )
        if value is None:
            return None
        return cls(metric=name, value=value, low=low, high=high, samples=_count(n), step=step)

    @property
    def name(self) -> str:
        """`pass_at_4`, `SET/pass_at_4`."""
        return self.metric.removeprefix(EVALUATION_PREFIX)

    @property
    def rounded(self) -> Self:
        ends = {"low": self.low, "high": self.high}
        known = {end: round_metric(value) for end, value in ends.items() if value is not None}
        return self.with_changes(value=round_metric(self.value), **known)

    @property
    def text(self) -> str:
        """`0.812 [0.780, 0.840]`, or without an interval `0.812`."""
        known = self.low is not None and self.high is not None
        return f"{self.value:.3f}" + (f" [{self.low:.3f}, {self.high:.3f}]" if known else "")

    @property
    def full_text(self) -> str:
        """With what is known of how it was made: `0.812 [0.780, 0.840] (eval/mean_reward, temperature 0)`."""
        return self.text + self.origin

    @property
    def origin(self) -> str:
        """` (eval/mean_reward, temperature 0)`: part of its name where it stands beside others; empty if nothing of it
        is particular or known.
        """
        known = [self.metric] if self.metric != HELD_OUT_METRIC else []
        known += [] if self.temperature is None else [f"temperature {self.temperature:g}"]
        return f" ({', '.join(known)})" if known else ""

    @property
    def brief(self) -> Self:
        """Without its interval and samples, for where space is short."""
        return self.with_changes(low=None, high=None, samples=None, temperature=None)

    def after(self, before: Self | None) -> Self:
        """With what was said before of the same figure. Figures of two evaluations do not mix. W&B knows it by
        HELD_OUT_METRIC alone.
        """
        if before is None:
            return self
        unknown = {"metric"} if self.metric == HELD_OUT_METRIC else set()
        told = self.model_dump(exclude_none=True, exclude=unknown, by_alias=False)
        agrees = all(getattr(before, name) in (None, HELD_OUT_METRIC, value) for name, value in told.items())
        return before.with_changes(**told) if agrees else self

    def is_above(self, other: "EvaluatedFigure") -> bool:
        """By more than noise: the 95 % intervals do not overlap."""
        return other.high is not None and self.low is not None and other.high < self.low


def _count(value: object) -> int | None:
    return int(value) if is_metric(value) and math.floor(value) == value and 0 <= value <= MAX_STEPS else None


def _or_none(value: object, read: ValidatorFunctionWrapHandler) -> Any:
    """What is not a number costs that metric, and not the message that it is in."""
    try:
        return read(value)
    except ValidationError:
        return None


Number = Annotated[float | None, Field(allow_inf_nan=False), WrapValidator(_or_none)]
Figure = Annotated[EvaluatedFigure | None, WrapValidator(_or_none)]


class RunMetrics(WireModel):
    """The latest metrics; fractions are 0 to 1, rounded to 4 digits. Advisory: the phase never depends on them."""

    rollout_reward: Annotated[
        Number,
        Origin(("env/reward_mean", "env_*/reward_mean"), "mean", history=True, weight=5),
        Shown("rollout reward", views=("line", "details", "page", "tools"), key="reward_mean"),
    ] = Field(
        default=None, description="Mean reward of all rollouts that environments scored, whatever became of them."
    )
    batch_reward: Annotated[Number, Origin(("reward/mean",), "step", history=True, weight=1), Shown("batch reward")] = (
        Field(default=None, description="Mean reward of the rollouts in the batch that the newest step trained.")
    )
    train_accuracy: Annotated[
        Number,
        Origin(("*train/percent_correct",), "mean", history=True),
        Shown("accuracy", views=("tools",), key="percent_correct"),
    ] = Field(default=None, description="Fraction of rollouts that were correct.")
    held_out: Annotated[
        Figure,
        Origin((HELD_OUT_METRIC,), "evaluation", history=True, weight=8, details=4),
        Shown("held-out", views=("line", "details", "page", "tools"), key="eval_percent_correct"),
    ] = Field(default=None, description="Latest held-out evaluation.")
    baseline: Annotated[
        Figure,
        Origin((HELD_OUT_METRIC,), "baseline", weight=6, details=2),
        Shown("held-out before", views=("page", "tools")),
    ] = Field(default=None, description="Held-out evaluation before training.")
    loss: Annotated[Number, Origin(("train/loss",), "step", history=True), Shown("loss", views=("tools",))] = Field(
        default=None, description="Mean loss per trained token."
    )
    learning_rate: Annotated[
        Number, Origin(("train/learning_rate",), "step"), Shown("learning rate", ".3g", ("page", "tools"))
    ] = Field(default=None, description="Adam's learning rate, as its schedule and `auto` make it.")
    logprob_gap: Annotated[Number, Origin(("logprobs/gap",), "step", history=True), Shown("logprob gap", ".2g", ())] = (
        Field(default=None, description="Mean absolute gap between sampling and training logprobs, staleness 0.")
    )
    staleness: Annotated[Number, Origin(("staleness/mean",), "step", history=True), Shown("staleness", views=())] = (
        Field(default=None, description="Mean policy steps between sampling and training.")
    )
    source: str | None = Field(default=None, description="Where the metrics come from: trainer, result or wandb.")
    observed_at: str | None = Field(default=None, description="When they were read.")

    @classmethod
    def of_numbers(cls, numbers: Mapping[str, object]) -> Self:
        """From values under the names of the wire, evaluations left out. What is not a finite number is left out, too:
        an environment may report anything.
        """
        known = {name: numbers.get(wire_name(name)) for name in reduced("step", "mean")}
        return cls.model_validate({name: value for name, value in known.items() if is_metric(value)})

    @property
    def known(self) -> dict[str, "float | EvaluatedFigure"]:
        """What is known, by field."""
        return {name: value for name in ORIGINS if (value := getattr(self, name)) is not None}

    def texts(self, view: View) -> dict[str, tuple[str, str]]:
        """By field: label and text of what is known and is shown there. A line does not say how a figure was made."""
        found = {}
        for name, shown, value in self._shown(view):
            figure = value if isinstance(value, EvaluatedFigure) else None
            text = (figure.text if view == "line" else figure.full_text) if figure else f"{value:{shown.form}}"
            found[name] = (shown.label, text)
        return found

    @property
    def answers(self) -> dict[str, float]:
        """What is known, as agents are answered, by their keys."""
        return {
            shown.key or name: value.value if isinstance(value, EvaluatedFigure) else value
            for name, shown, value in self._shown("tools")
        }

    def _shown(self, view: View) -> "Iterator[tuple[str, Shown, float | EvaluatedFigure]]":
        yield from ((name, SHOWN[name], value) for name, value in self.known.items() if view in SHOWN[name].views)

    @property
    def rounded(self) -> Self:
        return self.with_changes(
            **{
                name: value.rounded if isinstance(value, EvaluatedFigure) else round_metric(value)
                for name, value in self.known.items()
            }
        )

    @property
    def lighter(self) -> Self | None:
        """Without what weighs least of what is known; None: nothing is known."""
        known = self.known
        parts: list[tuple[int, str, EvaluatedFigure | None]] = [
            (ORIGINS[name].weight, name, None) for name in reversed(known)
        ]
        parts += [
            (ORIGINS[name].details, name, value.brief)
            for name, value in known.items()
            if isinstance(value, EvaluatedFigure) and value != value.brief
        ]
        if not parts:
            return None
        _, name, rest = min(parts, key=lambda part: part[0])
        return self.with_changes(**{name: rest})


Told = TypeVar("Told", Origin, Shown)


def _told(kind: type[Told]) -> dict[str, Told]:
    fields = RunMetrics.model_fields.items()
    return {name: each for name, field in fields for each in field.metadata if isinstance(each, kind)}


ORIGINS: Final[Mapping[str, Origin]] = _told(Origin)
"""By field of RunMetrics."""

SHOWN: Final[Mapping[str, Shown]] = _told(Shown)
"""By the same fields."""

HISTORY_METRICS: Final = tuple(to_camel(name) for name, origin in ORIGINS.items() if origin.history)
"""A point's fields besides its step, on the wire, each a number: a ConfigMap is limited to 1 MiB, and a trainer's own
point has a hundred metrics.
"""

MAX_POINTS: Final = 500
"""Of a run's history, in the trainer and kept."""


def reduced(*reductions: Reduction) -> dict[str, Origin]:
    """The metrics of these kinds, by field."""
    return {name: origin for name, origin in ORIGINS.items() if origin.reduction in reductions}


def wire_name(name: str) -> str:
    """`rolloutReward` of `rollout_reward`."""
    return to_camel(name)
