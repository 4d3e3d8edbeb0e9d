"""What the trainer says of a run: its `/status`, and its result, the container's termination message."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, model_validator

from rl_contract.status_metrics import MAX_STEPS, EvaluatedFigure, RunMetrics
from rl_contract.wire import WireModel

MAX_BYTES: Final = 1360
"""Of a result: a kubelet keeps 12 KiB for all containers of a pod, so much for each of nine."""

SCHEMA: Final = 1
MAX_ETA_SECONDS: Final = 2**53
MAX_REASON: Final = 500

MOST_FIGURES: Final = 16
"""Of an evaluation, in `/status` and in the run's status."""

Outcome = Literal["running", "succeeded", "stopped", "failed"]
Phase = Literal["starting", "sampling", "training", "saving", "done"]
PauseCause = Literal["BackendPaused", "BackendFull", "DiskFull"]
PAUSES: Final[frozenset[str]] = frozenset(get_args(PauseCause))


class EvaluatedFigures(WireModel):
    """The figures of one evaluation, if it has several: what matters most comes first. One that is not a number is
    among the `more`.
    """

    step: int = Field(description="The step whose weights it evaluated.")
    figures: tuple[EvaluatedFigure, ...] = Field(
        default=(),
        max_length=MOST_FIGURES,
        description="What it found, by metric.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["metric"]},
    )
    more: int = Field(default=0, description="Figures that have no room here; the rollouts of the step have them.")

    @model_validator(mode="wrap")
    @classmethod
    def _only_numbers(cls, said: object, read: ModelWrapValidatorHandler[Self]) -> Self:
        """Without what is no figure, which does not cost the message that it is in."""
        if not isinstance(said, Mapping) or not isinstance(said.get("figures"), list | tuple):
            return read(said)
        figures = tuple(each for each in said["figures"] if _is_figure(each))
        lost = len(said["figures"]) - len(figures[:MOST_FIGURES])
        return read({**said, "figures": figures[:MOST_FIGURES], "more": said.get("more", 0) + lost})

    @property
    def shorter(self) -> "EvaluatedFigures | None":
        """Without the last one; None: there is no other."""
        if len(self.figures) < 2:
            return None
        return self.with_changes(figures=self.figures[:-1], more=self.more + 1)


def _is_figure(said: object) -> bool:
    try:
        EvaluatedFigure.model_validate(said)
    except ValidationError:
        return False
    return True


class BestCheckpoint(WireModel):
    """The weights with the best held-out figure so far: of equal figures, the earlier step's."""

    step: int = Field(description="Optimizer step that they are of.")
    held_out: EvaluatedFigure = Field(description="Their held-out evaluation.")
    state_path: str = Field(description="tinker:// path to train on from.")
    sampler_path: str = Field(description="tinker:// path to sample from.")
    expires_at: str | None = Field(default=None, description="When the backend deletes them.")

    def is_better_than(self, last: RunMetrics) -> bool:
        """By more than noise. Stricter than a test of the difference, because the best was chosen for being high."""
        return last.held_out is not None and self.held_out.is_above(last.held_out)


class RunCost(WireModel):
    """What the run has cost, all attempts and evaluations included, by the runtime's prices."""

    amount: float = Field(ge=0, description="Rounded to four decimals.")
    currency: str = Field(description="As spec.backend.prices of the runtime names it.")
    budget: float | None = Field(default=None, description="The spec.budget that the newest attempt keeps to.")

    def after(self, before: "RunCost | None") -> "RunCost":
        """As a trainer told it, which knows of earlier attempts. It never falls: lost steps have cost something."""
        amount = max(self.amount, before.amount if before else 0.0)
        return self.with_changes(amount=round(amount, 4))


class ItemAccount(WireModel):
    """What became of the items that the run was dealt, all attempts together: seen = trained + dropped + underWay."""

    seen: int = Field(ge=0, description="Items dealt to environments, each epoch's counted.")
    trained: int = Field(ge=0, description="Items whose group was trained.")
    dropped: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default={}, description="Items that are not trained, by reason."
    )
    under_way: int = Field(ge=0, description="Items in rollouts, in groups that wait, or waiting to be dealt again.")
    again: int = Field(
        default=0, ge=0, description="How often an item was dealt again, because its process or its step was lost."
    )
    epoch_size: int | None = Field(default=None, description="Items of an epoch, if the environment says it.")

    @property
    def epoch(self) -> float | None:
        """How often the order was gone through: 1.35 is within the second epoch."""
        return self.seen / self.epoch_size if self.epoch_size else None

    @property
    def text(self) -> str:
        """`540 seen = 480 trained + 52 dropped (40 equal, 12 too_long) + 8 under way; 3 dealt again; epoch 1.35`."""
        reasons = ", ".join(f"{items} {reason}" for reason, items in sorted(self.dropped.items()) if items)
        dropped = f"{sum(self.dropped.values())} dropped" + (f" ({reasons})" if reasons else "")
        account = f"{self.seen} seen = {self.trained} trained + {dropped} + {self.under_way} under way"
        again = f"; {self.again} dealt again" if self.again else ""
        return account + again + ("" if self.epoch is None else f"; epoch {self.epoch:.2f} of {self.epoch_size} items")


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
    """The checkpoint of the state at the result's `statePath`. `expires_at` None: never, or unknown."""

    expires_at: str | None = None


class ResultBest(WireModel):
    """The best weights, as a result has them: a path that is the result's own is left out."""

    step: int
    held_out: EvaluatedFigure
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
    items: ItemAccount | None = None
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


class Pause(WireModel):
    """Why training stands still though nothing is wrong with the run: it goes on by itself."""

    cause: PauseCause
    since: str = Field(description="When it began, RFC 3339.")
    reason: str = Field(description="In the words of the backend or the operating system.")

    @model_validator(mode="after")
    def _since_a_moment(self) -> Self:
        if datetime.fromisoformat(self.since).tzinfo is None:
            raise ValueError("since has no time zone")
        return self

    @property
    def sentence(self) -> str:
        """`Paused by the backend since 10:41 UTC: short on capacity.` The same as long as the pause lasts."""
        since = datetime.fromisoformat(self.since).astimezone(UTC).strftime("%H:%M UTC")
        what = {"BackendPaused": "Paused by the backend", "BackendFull": "The backend is full", "DiskFull": "Disk full"}
        return f"{what[self.cause]} since {since}: {self.reason.strip().rstrip('.')}."


class TrainerStatus(WireModel):
    """`/status`. Advisory.

    `from_step` is None until its training is open. `waiting` is a sentence on what it waits for and why, `warnings` are
    few and short ones. `backend_silent`: it cannot reach its backend. `pause`: why it stands still, while it does, and
    `resumed_at` when it last did through no fault of its own (a pause, or a process that was frozen): deadlines of
    progress and of the start count from there, and do not run during a pause. `run_uid` and `attempt` say whose
    trainer it is: a pod's IP address may belong to another pod a moment later.
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
    items: ItemAccount | None = None
    backend_silent: bool = False
    pause: Pause | None = None
    resumed_at: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """With null for what is not known yet: people read it."""
        unknown = dict.fromkeys(field.alias or name for name, field in type(self).model_fields.items())
        return unknown | super().to_wire()
