"""What the journal holds, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypedDict

from tinker_atropos.trajectory_api.messages.requests import (
    EnvRegistration,
    LeaseReport,
    ProgressReport,
    TrainerRegistration,
)

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
    """One group: its JSON as sent (gzip if `gzipped`). A group with a known `key` is a repeat."""

    env_id: int | None
    rollouts: int
    largest_token: int
    content: bytes
    gzipped: bool
    key: str


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
