"""Bodies of the routes, checked at the border. Names are the protocol's."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from tinker_atropos.trajectory_api.leases import ReportedState

DEFAULT_ENV_NAME = "environment"

Count = Annotated[int, Field(ge=0, lt=2**31)]
"""Of steps, rollouts or ids: what a column of the journal holds."""

Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""What JSON can hand back."""


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Registration(_Body):
    """`POST /register`: the trainer says what it will train. `batch_size` counts rollouts.

    `max_staleness` (policy steps that a rollout may be old; None: any) and `vocabulary` (number of token ids) are ours.
    """

    wandb_group: str
    wandb_project: str
    batch_size: int = Field(gt=0, le=2**20)
    max_token_len: Integer
    checkpoint_dir: str
    save_checkpoint_interval: Integer
    starting_step: Count
    num_steps: Count = Field(gt=0)
    max_staleness: Count | None = None
    vocabulary: Count | None = Field(default=None, gt=0)


class EnvRegistration(_Body):
    """`POST /register-env`. `desired_name` is null in environments that set no wandb_name."""

    max_token_length: Integer
    desired_name: str | None = None
    weight: float | None = Field(default=None, lt=2**31, allow_inf_nan=False)
    group_size: int = Field(gt=0, le=2**20)
    min_batch_allocation: float | None = Field(default=None, ge=0, le=1)

    @property
    def name(self) -> str:
        return self.desired_name or DEFAULT_ENV_NAME

    @property
    def share(self) -> float:
        """Unscaled claim on the trainer's attention: context length times weight."""
        return self.max_token_length * max(0.0, 1.0 if self.weight is None else self.weight)


class EnvIdentifier(_Body):
    env_id: int


class LeaseReport(_Body):
    """`PUT /rl/lease/{role}`."""

    state: ReportedState
    reason: str | None = None
    ttl_seconds: float = Field(default=15, gt=0, le=600)


class ProgressReport(_Body):
    """`POST /rl/progress`: `steps_trained` counts from the run's beginning, resumed steps included.

    `checkpoint_step`: the steps below it are in a checkpoint; None: no newer one. `totals`: the trainer's own counters,
    handed back by `GET /rl/books`.
    """

    steps_trained: Count
    training_done: bool = False
    reason: str | None = None
    checkpoint_step: Count | None = None
    totals: dict[str, Integer] | None = None

    def after(self, earlier: "ProgressReport") -> "ProgressReport":
        """What is known when this report comes after `earlier` ones, be it late or of a replay."""
        return ProgressReport(
            steps_trained=max(self.steps_trained, earlier.steps_trained),
            training_done=self.training_done or earlier.training_done,
            reason=earlier.reason if self.reason is None else self.reason,
            checkpoint_step=max(
                (step for step in (self.checkpoint_step, earlier.checkpoint_step) if step is not None), default=None
            ),
            totals=earlier.totals if self.totals is None else self.totals,
        )


class DropRequest(_Body):
    """`POST /rl/drop`: groups, by the ids of `GET /batch`, that will not be trained."""

    ids: list[Count]
    reason: str = Field(min_length=1, max_length=64)


class MetricsReport(_Body):
    """`POST /rl/metrics`."""

    step: Count | None = None
    metrics: dict[str, FiniteFloat]
    source: str
