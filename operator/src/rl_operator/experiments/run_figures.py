"""What is compared of a run, as values: its figures, its settings, and what a sweep set. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from rl_operator.api.model import ObservedModel
from rl_operator.api.names import RUN_NAME_PATTERN
from rl_operator.api.run import TrainingRun
from rl_operator.api.sections import same_value
from rl_operator.api.status_fields import TERMINAL_PHASES, BestCheckpoint, Phase, RunMetrics
from rl_operator.api.value_text import text_of
from rl_operator.experiments.grid import SWEPT_FIELD, swept_values
from rl_operator.experiments.held_out_sets import Settings, fingerprint


class HeldOut(ObservedModel):
    """A held-out figure with its 95 % interval, if it is a fraction, and the number of samples behind it."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None

    @property
    def text(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.3f}"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class RunFigures(ObservedModel):
    """A run as it is compared. A table keeps it, without `settings`, for when the run is gone."""

    name: str = Field(pattern=RUN_NAME_PATTERN)
    uid: str = ""
    created: str = ""
    phase: Phase = "Pending"
    message: str = ""
    step: int | None = None
    total_steps: int | None = None
    reward: float | None = None
    held_out: HeldOut | None = None
    before: HeldOut | None = None
    best: HeldOut | None = None
    best_step: int | None = None
    seconds: float | None = None
    attempts: int = 0
    swept: dict[Annotated[str, Field(pattern=SWEPT_FIELD)], Any] = Field(default_factory=dict)
    held_out_set: str = ""
    settings: dict[str, Any] = Field(default_factory=dict)
    gone: bool = False

    @property
    def kept(self) -> dict[str, Any]:
        """As JSON, without `settings`, and without what says nothing."""
        wire = self.model_dump(mode="json", exclude_none=True, exclude={"settings"})
        return {name: value for name, value in wire.items() if value not in ("", {}, False)}

    @property
    def finished(self) -> bool:
        return self.phase in TERMINAL_PHASES

    @property
    def steps(self) -> str:
        return "-" if self.step is None else f"{self.step}/{self.total_steps}"

    @property
    def without_figure(self) -> str:
        """Why it has no held-out figure; empty if it has one."""
        if self.held_out is not None:
            return ""
        if self.settings.get("config.steps_per_eval", self.swept.get("config.steps_per_eval")) == 0:
            return "its config.steps_per_eval is 0: it is not evaluated"
        if self.finished or self.gone:
            return f"it ended without one ({'deleted' if self.gone else self.phase})"
        return f"it is {self.phase}, and has none yet"


def figures_of(run: TrainingRun, settings: Settings, now: datetime) -> RunFigures:
    """`settings`: what is in force for the run (`targets.trained_settings`)."""
    status, metrics, progress = run.status, run.status.metrics, run.status.progress
    best = status.best
    return RunFigures(
        name=run.metadata.name,
        uid=run.metadata.uid,
        created=run.metadata.creation_timestamp or "",
        phase=status.phase or "Pending",
        message=status.message or "",
        step=progress.step if progress else None,
        total_steps=progress.total_steps if progress else None,
        reward=metrics.reward_mean if metrics else None,
        held_out=_held_out(metrics, "eval") if metrics else None,
        before=_held_out(metrics, "baseline") if metrics else None,
        best=_best(best) if best else None,
        best_step=best.step if best else None,
        seconds=elapsed_seconds(run, now),
        attempts=status.attempt or 0,
        swept=swept_values(run.metadata.annotations),
        held_out_set=fingerprint(settings),
        settings=dict(settings),
    )


def _best(best: BestCheckpoint) -> HeldOut:
    return HeldOut(value=best.eval_accuracy, low=best.eval_accuracy_low, high=best.eval_accuracy_high)


def _held_out(metrics: RunMetrics, which: Literal["eval", "baseline"]) -> HeldOut | None:
    value = getattr(metrics, f"{which}_accuracy")
    ends = {end: getattr(metrics, f"{which}_accuracy_{end}") for end in ("low", "high", "n")}
    return None if value is None else HeldOut(value=value, **ends)


def elapsed_seconds(run: TrainingRun, now: datetime) -> float | None:
    """From the start to the end; of a stopped run to the end of its last attempt."""
    status = run.status
    if status.start_time is None:
        return None
    stopped = status.attempts[-1].ended if status.attempts and status.phase == "Stopped" else None
    until = status.completion_time or stopped
    end = datetime.fromisoformat(until) if until else now
    return max(0.0, (end - datetime.fromisoformat(status.start_time)).total_seconds())


UNSET: Final = "default"
"""Of a field that a run does not set and whose default is not known, as in an environment of one's own."""


LONGEST_SETTING: Final = 60
"""Characters, in a sentence."""


def setting_text(value: Any) -> str:
    """For a sentence: short, and on one line, whoever wrote it."""
    text = value if isinstance(value, str) and value.isprintable() else text_of(value)
    return text if len(text) <= LONGEST_SETTING else f"{text[: LONGEST_SETTING - 1]}…"


def differing_settings(rows: Sequence[RunFigures]) -> dict[str, tuple[Any, ...]]:
    """By field the value of each run, of the fields in which they are not all alike."""
    fields = sorted({field for row in rows for field in row.settings}, key=_order)
    values = {field: tuple(row.settings.get(field, UNSET) for row in rows) for field in fields}
    return {field: each for field, each in values.items() if not all(same_value(each[0], other) for other in each)}


def _order(field: str) -> tuple[bool, str]:
    """What stands at the top of a run's spec comes first."""
    return "." in field, field
