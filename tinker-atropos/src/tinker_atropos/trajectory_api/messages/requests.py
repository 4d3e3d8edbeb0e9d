"""Request bodies of the routes, validated on entry, whose names are the protocol's; and what the journal holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat

from rl_contract.processes import EVALUATOR, ReportedState
from rl_contract.rollout_fates import ItemEnd

DEFAULT_ENV_NAME = "environment"

Count = Annotated[int, Field(ge=0, lt=2**31)]
"""Steps, rollouts or ids: what fits into a column of the journal."""

MAX_ENVIRONMENTS = 256
"""Each has its own name in W&B, and a row in the journal."""

Index = Annotated[int, Field(ge=0, lt=MAX_ENVIRONMENTS)]
"""Index of an environment among those of the run."""

Position = Annotated[int, Field(ge=0, lt=2**53)]
"""Where an item is in the order of the run's data, through all epochs."""

Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""What can be returned as JSON."""


MAX_NAME = 128
MAX_REASON = 1_000
MAX_WARNINGS = 8
MAX_STATE = 512
MAX_METRICS = 1_000
"""Names, sentences and metrics come from environments, which are not trusted; all are stored and read again."""

Name = Annotated[str, Field(max_length=MAX_NAME)]
Reason = Annotated[str, AfterValidator(lambda sentence: sentence[:MAX_REASON])]
"""Truncated, not refused: it may say why a process failed."""

EnvironmentState = Annotated[str, Field(max_length=MAX_STATE)]
"""Kept with checkpoints, whose metadata is no place for more."""


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class TrainerRegistration(_Body):
    """`POST /register`: the trainer announces what it will train. `batch_size` counts rollouts.

    `max_staleness` (maximum age of a rollout in policy steps at first; None: any), `vocabulary` (size in token ids),
    `environment_state` (what the environment reported when the checkpoint was saved that training continues from) and
    `items` (what `GET /rl/items/state` answered then) are ours.
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
    environment_state: EnvironmentState | None = None
    items: EnvironmentState | None = None


class EnvRegistration(_Body):
    """`POST /register-env`. `desired_name` is null for environments without a wandb_name.

    `index` is ours: which of the run's environments it is.
    """

    max_token_length: Integer
    desired_name: Name | None = None
    index: Index | None = None
    weight: float | None = Field(default=None, lt=2**31, allow_inf_nan=False)
    group_size: int = Field(gt=0, le=2**20)
    min_batch_allocation: float | None = Field(default=None, ge=0, le=1)

    @property
    def name(self) -> str:
        return self.desired_name or DEFAULT_ENV_NAME

    @property
    def share(self) -> float:
        """Unscaled share of the training: context length times weight."""
        return max(0, self.max_token_length) * max(0.0, 1.0 if self.weight is None else self.weight)


class EnvIdentifier(_Body):
    env_id: int


class LeaseReport(_Body):
    """`PUT /rl/lease/{role}`. With several environments, each sends its process's `id`, its `index`, and whether it is
    replaced when it ends. `warnings` are sentences for the run's status, which stand until the next heartbeat;
    `environment_state` is what the trainer keeps with its checkpoints.
    """

    state: ReportedState
    reason: Reason | None = None
    id: str = Field(default="", max_length=64, pattern=r"^[A-Za-z0-9._-]*$")
    index: Index = EVALUATOR
    replaced: bool = False
    warnings: tuple[Reason, ...] = Field(default=(), max_length=MAX_WARNINGS)
    environment_state: EnvironmentState | None = None
    ttl_seconds: float = Field(default=15, gt=0, le=600)


class ProgressReport(_Body):
    """`POST /rl/progress`: `steps_trained` counts from the beginning of the run, including resumed steps.

    `checkpoint_step`: the steps below it are in a checkpoint; None: no newer one. `totals`: the trainer's own counters,
    returned by `GET /rl/books`. `max_staleness`: how old rollouts may become from now on, in policy steps; None: as
    before.
    """

    steps_trained: Count
    training_done: bool = False
    reason: str | None = None
    checkpoint_step: Count | None = None
    totals: dict[str, Integer] | None = None
    max_staleness: Count | None = None

    def after(self, earlier: "ProgressReport") -> "ProgressReport":
        """What is known when this report arrives after `earlier`, even if it is late or from a replay."""
        return ProgressReport(
            steps_trained=max(self.steps_trained, earlier.steps_trained),
            training_done=self.training_done or earlier.training_done,
            reason=earlier.reason if self.reason is None else self.reason,
            checkpoint_step=max(
                (step for step in (self.checkpoint_step, earlier.checkpoint_step) if step is not None), default=None
            ),
            totals=earlier.totals if self.totals is None else self.totals,
            max_staleness=earlier.max_staleness if self.max_staleness is None else self.max_staleness,
        )


class ItemOfGroup(_Body):
    """In `group_overrides` of the first group of an item: its position, and the id of the process it was dealt to."""

    position: Position | None = None
    holder: str = Field(default="", max_length=64)


class EndedItem(_Body):
    """An item that became no group, and why."""

    position: Position
    reason: ItemEnd


class ItemsRequest(_Body):
    """`POST /rl/items`: the environment process with the lease `id` asks for `count` positions in the run's data, and
    says which of its items have ended without a group. `held`: those that it still has: an answer that it did not get
    dealt it others, which are given back. `epoch_size`: how many items there are; None: that is not known.
    """

    id: str = Field(max_length=64, pattern=r"^[A-Za-z0-9._-]+$")
    count: int = Field(ge=0, le=1_024)
    epoch_size: int | None = Field(default=None, gt=0, lt=2**31)
    held: tuple[Position, ...] = Field(default=(), max_length=8_192)
    ended: tuple[EndedItem, ...] = Field(default=(), max_length=4_096)


class DropRequest(_Body):
    """`POST /rl/drop`: groups, by the ids of `GET /batch`, that will not be trained."""

    ids: list[Count]
    reason: str = Field(min_length=1, max_length=64)


class MetricsReport(_Body):
    """`POST /rl/metrics`. `environment` is the index of the reporting environment. Of an evaluation, `metric` is the
    environment's own name of the held-out figure, and `temperature` what it was sampled at.
    """

    step: Count | None = None
    metrics: dict[Name, FiniteFloat] = Field(max_length=MAX_METRICS)
    source: Name
    environment: Index | None = None
    metric: Name | None = None
    temperature: FiniteFloat | None = None


NewGroupState = Literal["buffered", "queued"]
GroupState = Literal["buffered", "queued", "delivered", "trained"]


@dataclass(frozen=True, slots=True)
class RegisteredEnv:
    env_id: int
    wandb_name: str
    connected: bool
    registration: EnvRegistration


@dataclass(frozen=True, slots=True)
class ReceivedGroup:
    """One group: its JSON as sent (gzip if `gzipped`). A group with a known `key` is a repeat. `position`: of its item,
    which was dealt to the process `holder`, if it is the first group of one.
    """

    env_id: int | None
    rollouts: int
    largest_token: int
    content: bytes
    gzipped: bool
    key: str
    position: int | None = None
    holder: str = ""


@dataclass(frozen=True, slots=True)
class RefusedGroup:
    """A group that will never be stored. `rollouts` is 0 if the body could not be read that far."""

    reason: str
    rollouts: int


@dataclass(frozen=True, slots=True)
class PostedGroups:
    """The groups of one POST: stored and counted together, or not at all."""

    groups: tuple[ReceivedGroup, ...] = ()
    refused: tuple[RefusedGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Groups of one step, oldest first. It is not delivered as long as it lacks `missing` rollouts.

    `received_at` is when each group arrived, in seconds since the epoch.
    """

    group_ids: tuple[int, ...] = ()
    received_at: tuple[float, ...] = ()
    contents: tuple[bytes, ...] = ()
    missing: int = 0


@dataclass(frozen=True, slots=True)
class RunState:
    """What is known about the run.

    `started`: the trainer has requested its first batch. `covered_step`: the batches of the steps below it are in a
    checkpoint, and their content is gone. `evaluated_step`: the newest evaluation that was reported. `leases`: by key,
    which is `trainer`, `environment`, or `environment/ID`.
    """

    registration: TrainerRegistration | None
    started: bool
    progress: ProgressReport
    covered_step: int
    evaluated_step: int | None
    leases: Mapping[str, LeaseReport]


@dataclass(frozen=True, slots=True)
class GroupCount:
    """How many groups of one environment, of `size` rollouts each, are in a state."""

    state: GroupState
    env_id: int | None
    size: int
    groups: int

    @property
    def rollouts(self) -> int:
        return self.size * self.groups


class Books(TypedDict):
    """Where every group is, in one unit. received == buffered + queued + delivered + trained + sum(dropped)."""

    received: int
    duplicates: int
    refused: dict[str, int]
    buffered: int
    queued: int
    delivered: int
    trained: int
    dropped: dict[str, int]
    replay_evicted: int


class ItemBooks(TypedDict):
    """Where every item is that was dealt out. seen == trained + sum(dropped) + under_way.

    `again`: how often an item was dealt once more, because its process or its step was lost. `epoch` is that of the
    newest item, from 0; None: nobody has said how many items there are.
    """

    seen: int
    trained: int
    dropped: dict[str, int]
    under_way: int
    again: int
    epoch: int | None
    epoch_size: int | None
