"""What the trainer says of a run: its `/status`, and its result, the container's termination message."""

from typing import Any, Final, Literal

from pydantic import Field

from rl_contract.run_metrics import RunMetrics
from rl_contract.wire import WireModel

MAX_BYTES: Final = 1360
"""Of a result: a kubelet keeps 12 KiB for all containers of a pod, so much for each of nine."""

SCHEMA: Final = 1
MAX_STEPS: Final = 2**31 - 1
MAX_ETA_SECONDS: Final = 2**53
MAX_REASON: Final = 500

MOST_FIGURES: Final = 16
"""Of an evaluation, in `/status` and in the run's status."""

Outcome = Literal["running", "succeeded", "stopped", "failed"]
Phase = Literal["starting", "sampling", "training", "saving", "done"]

FigureRow = tuple[str, float, float | None, float | None, int | None]
"""Name, value, the ends of its 95 % interval, and the samples behind it; None: unknown."""


class EvaluatedFigures(WireModel):
    """What one evaluation found, if that is more than one figure, in little space: what matters most comes first.
    `more` others have no room.
    """

    step: int
    figures: tuple[FigureRow, ...] = ()
    more: int = 0

    @property
    def shorter(self) -> "EvaluatedFigures | None":
        """Without the last row; None: there is no other."""
        if len(self.figures) < 2:
            return None
        return self.with_changes(figures=self.figures[:-1], more=self.more + 1)


class BestCheckpoint(WireModel):
    """The weights with the best held-out figure so far: of equal figures, the earlier step's."""

    step: int = Field(description="Optimizer step that they are of.")
    eval_accuracy: float = Field(description="Their held-out evaluation.")
    eval_accuracy_low: float | None = Field(default=None, description="Lower end of its 95 % interval.")
    eval_accuracy_high: float | None = Field(default=None, description="Upper end of its 95 % interval.")
    state_path: str = Field(description="tinker:// path to train on from.")
    sampler_path: str = Field(description="tinker:// path to sample from.")
    expires_at: str | None = Field(default=None, description="When the backend deletes them.")

    def is_better_than(self, last: RunMetrics) -> bool:
        """By more than noise: the 95 % intervals do not overlap. Stricter than a test of the difference, because the
        best was chosen for being high.
        """
        high, low = last.eval_accuracy_high, self.eval_accuracy_low
        return high is not None and low is not None and high < low


class RunCost(WireModel):
    """What the run has cost, all attempts and evaluations included, by the runtime's prices."""

    amount: float = Field(ge=0, description="Rounded to four decimals.")
    currency: str = Field(description="As spec.backend.prices of the runtime names it.")
    budget: float | None = Field(default=None, description="The spec.budget that the newest attempt keeps to.")

    def after(self, before: "RunCost | None") -> "RunCost":
        """As a trainer told it, which knows of earlier attempts. It never falls: lost steps have cost something."""
        amount = max(self.amount, before.amount if before else 0.0)
        return self.with_changes(amount=round(amount, 4))


class WandbStatus(WireModel):
    """The run on Weights & Biases."""

    url: str | None = Field(default=None, description="Page of the run.")
    run_id: str | None = Field(default=None, description="Deterministic id of the run.")
    state: str | None = Field(
        default=None,
        description="As the trainer knows it: running, finished, disabled, or offline with the command that sends it "
        "later; with W&B's own state beside it where that is another one. Absent where it is unknown how it ended.",
    )


class ResultError(WireModel):
    error_class: str = Field(alias="class")
    message: str = ""


class ResultCheckpoint(WireModel):
    """Of the state at the result's `statePath`. `expires_at` None: never, or unknown."""

    expires_at: str | None = None


class ResultBest(WireModel):
    """The best weights, as a result has them: a path that is the result's own is left out."""

    step: int
    eval_accuracy: float
    eval_accuracy_low: float | None = None
    eval_accuracy_high: float | None = None
    state_path: str | None = None
    sampler_path: str | None = None
    expires_at: str | None = None

    @classmethod
    def of(cls, best: BestCheckpoint) -> "ResultBest":
        return cls(**best.model_dump(by_alias=False))


class TrainerResult(WireModel):
    """How far a run has come. It is written at readiness and rewritten at every checkpoint with `outcome: running`, so
    that even a process that is killed leaves behind its last state path.

    `from_step`: the step that this attempt continued from; None until training is open.
    `stopped_early`: why the last step is not `total_steps`, in a run that is complete all the same.
    `dropped_at_stop`: rollouts that waited when it was stopped.
    `evaluation`: all figures of the newest evaluation, if it has several.
    """

    schema_version: int = Field(default=SCHEMA, alias="schema")
    outcome: Outcome
    attempt: int = 1
    from_step: int | None = None
    steps_trained: int = 0
    total_steps: int = 0
    training_run_id: str | None = None
    state_path: str | None = None
    sampler_path: str | None = None
    checkpoint: ResultCheckpoint = ResultCheckpoint()
    metrics: RunMetrics = RunMetrics()
    evaluation: EvaluatedFigures | None = None
    best: ResultBest | None = None
    stopped_early: str | None = None
    dropped_at_stop: int | None = None
    cost: RunCost | None = None
    error: ResultError | None = None

    @property
    def best_checkpoint(self) -> BestCheckpoint | None:
        """The best weights with their paths; None if a path is nowhere in the result."""
        if self.best is None:
            return None
        state_path, sampler_path = self.best.state_path or self.state_path, self.best.sampler_path or self.sampler_path
        if not (state_path and sampler_path):
            return None
        known = self.best.model_dump(by_alias=False) | {"state_path": state_path, "sampler_path": sampler_path}
        return BestCheckpoint(**known)

    @property
    def compact(self) -> "TrainerResult":
        """Without paths of the best weights that are said already: space is short."""
        if self.best is None:
            return self
        paths = {name: getattr(self.best, name) for name in ("state_path", "sampler_path")}
        own = {name: None for name, path in paths.items() if path == getattr(self, name)}
        return self.with_changes(best=self.best.with_changes(**own))


class TrainerCheckpoint(WireModel):
    """The newest state checkpoint."""

    step: int
    state_path: str
    expires_at: str | None = None


class TrainerStatus(WireModel):
    """`/status`. Advisory.

    `from_step` is None until its training is open. `waiting` is a sentence on what it waits for and why, `warnings` are
    few and short ones. `backend_silent`: it cannot reach its backend. `run_uid` and `attempt` say whose trainer it is:
    a pod's IP address may belong to another pod a moment later.
    """

    run_uid: str | None = None
    attempt: int | None = None
    phase: str = "starting"
    waiting: str | None = None
    warnings: tuple[str, ...] = ()
    step: int = Field(default=0, ge=0, le=MAX_STEPS)
    from_step: int | None = Field(default=None, ge=0, le=MAX_STEPS)
    total_steps: int = Field(default=0, ge=0, le=MAX_STEPS)
    started_at: str | None = None
    last_step_at: str | None = None
    seconds_per_step: float | None = None
    eta_seconds: int | None = Field(default=None, ge=0, le=MAX_ETA_SECONDS)
    training_run_id: str | None = None
    checkpoint: TrainerCheckpoint | None = None
    stopped_early: str | None = Field(default=None, max_length=MAX_REASON)
    best: BestCheckpoint | None = None
    metrics: RunMetrics = RunMetrics()
    evaluation: EvaluatedFigures | None = None
    wandb: WandbStatus | None = None
    cost: RunCost | None = None
    backend_silent: bool = False

    def to_wire(self) -> dict[str, Any]:
        """With null for what is not known yet: people read it."""
        unknown = dict.fromkeys(field.alias or name for name, field in type(self).model_fields.items())
        return unknown | super().to_wire()
