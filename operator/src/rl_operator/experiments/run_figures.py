"""What is compared of a run, as values: its figures, its settings, and what a sweep set. Pure."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import Field

from rl_contract.status_metrics import EvaluatedFigure
from rl_operator.api.model import ObservedModel
from rl_operator.api.names import RUN_NAME_PATTERN
from rl_operator.api.status_fields import TERMINAL_PHASES, Phase
from rl_operator.api.training_run import TrainingRun
from rl_operator.api.value_text import all_same, text_of
from rl_operator.experiments.grid import SWEPT_FIELD, swept_values

Settings = Mapping[str, Any]
"""What is in force for a run: `environment`, `runtime`, `config.…`, `trainer.…`."""

TRAINING_ONLY: Final = frozenset(
    f"config.{name}"
    for name in (
        "total_steps", "group_size", "batch_size", "max_batches_offpolicy", "steps_per_eval", "eval_items",
        "eval_samples", "item_seed", "difficulty_pools", "tokenizer_name", "inference_weight",
        "ensure_scores_are_not_same", "min_batch_allocation",
        "max_num_workers", "max_num_workers_per_node", "max_eval_workers", "worker_timeout",
        "eval_handling", "eval_limit_ratio", "include_messages", "min_items_sent_before_logging",
        "num_rollouts_to_keep", "num_rollouts_per_group_for_logging", "data_path_to_save_groups",
        "data_dir_to_save_evals", "eval_greedy", "use_wandb", "wandb_name",
    )
)  # fmt: skip
"""Fields of every environment that say how it is trained, how often it is evaluated, by how many items and samples of
a set, or what is logged. All others may say what is asked: also `max_token_length`, and whatever an environment adds,
such as a `seed`.
"""

BESIDE_CONFIG: Final = ("environment", "files", "trainer.eval_metric")


def held_out_settings(settings: Settings) -> Iterator[tuple[str, object]]:
    """Those that decide what is asked in an evaluation, how it is answered, and what the figure is."""
    for name, value in sorted(settings.items()):
        if name in BESIDE_CONFIG or (name.startswith("config.") and name not in TRAINING_ONLY):
            yield name, value


def fingerprint(settings: Settings) -> str:
    """8 hex digits; equal ones mean the same held-out set. 1.0 is 1."""
    canonical = json.dumps([(name, text_of(value)) for name, value in held_out_settings(settings)])
    return hashlib.sha256(canonical.encode()).hexdigest()[:8]


def held_out_differences(left: Settings, right: Settings) -> tuple[str, ...]:
    """The names of those that differ."""
    sides = [{name: text_of(value) for name, value in held_out_settings(each)} for each in (left, right)]
    return tuple(sorted(name for name in sides[0].keys() | sides[1].keys() if sides[0].get(name) != sides[1].get(name)))


class RunFigures(ObservedModel):
    """A run as it is compared. A table keeps it, without `settings` and `answers`, for when the run is gone.

    `answers`: by held-out item, what each answer behind `held_out` is worth; `unpaired`: why there are none.
    """

    name: str = Field(pattern=RUN_NAME_PATTERN)
    uid: str = ""
    created: str = ""
    phase: Phase = "Pending"
    message: str = ""
    step: int | None = None
    total_steps: int | None = None
    rollout_reward: float | None = None
    held_out: EvaluatedFigure | None = None
    before: EvaluatedFigure | None = None
    best: EvaluatedFigure | None = None
    best_step: int | None = None
    seconds: float | None = None
    attempts: int = 0
    swept: dict[Annotated[str, Field(pattern=SWEPT_FIELD)], Any] = Field(default_factory=dict)
    held_out_set: str = ""
    settings: dict[str, Any] = Field(default_factory=dict)
    answers: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    unpaired: str = ""
    gone: bool = False

    @property
    def kept(self) -> dict[str, Any]:
        """As JSON, without what a table does not keep, and without what says nothing."""
        wire = self.model_dump(mode="json", exclude_none=True, exclude={"settings", "answers", "unpaired"})
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

    @property
    def why_unpaired(self) -> str:
        """Why the answers to each held-out item are not known; empty if nobody has looked."""
        return "it was deleted, and its answers with it" if self.gone else self.unpaired


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
        rollout_reward=metrics.rollout_reward if metrics else None,
        held_out=metrics.held_out if metrics else None,
        before=metrics.baseline if metrics else None,
        best=best.held_out if best else None,
        best_step=best.step if best else None,
        seconds=elapsed_seconds(run, now),
        attempts=status.attempt or 0,
        swept=swept_values(run.metadata.annotations),
        held_out_set=fingerprint(settings),
        settings=dict(settings),
    )


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


def setting_text(value: object) -> str:
    """For a sentence: short, and on one line, whoever wrote it."""
    text = value if isinstance(value, str) and value.isprintable() else text_of(value)
    return text if len(text) <= LONGEST_SETTING else f"{text[: LONGEST_SETTING - 1]}…"


def differing_settings(rows: Sequence[RunFigures]) -> dict[str, tuple[object, ...]]:
    """By field the value of each run, of the fields in which they are not all alike."""
    fields = {field for row in rows for field in row.settings}
    ordered = sorted(fields, key=lambda field: ("." in field, field))  # what stands at the top of a run's spec is first
    values = {field: tuple(row.settings.get(field, UNSET) for row in rows) for field in ordered}
    return {field: each for field, each in values.items() if not all_same(each)}
