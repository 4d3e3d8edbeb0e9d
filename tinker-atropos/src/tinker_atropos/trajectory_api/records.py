"""What the journal holds, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tinker_atropos.trajectory_api.leases import Role
from tinker_atropos.trajectory_api.requests import EnvRegistration, LeaseReport, ProgressReport, Registration

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
    """One group of `size` sequences: its JSON as it was sent (gzip when `gzipped`), and the hash of that JSON."""

    env_id: int | None
    size: int
    content: bytes
    gzipped: bool
    content_hash: bytes


@dataclass(frozen=True, slots=True)
class RunState:
    """What is known of the run. `started`: the trainer has asked for its first batch."""

    registration: Registration | None
    started: bool
    progress: ProgressReport
    leases: Mapping[Role, LeaseReport]


@dataclass(frozen=True, slots=True)
class GroupCount:
    """How many groups of one environment and size are in a state."""

    state: GroupState
    env_id: int | None
    size: int
    groups: int

    @property
    def sequences(self) -> int:
        return self.size * self.groups
