"""Trainer and environment watch each other through leases. Pure: the clock is an argument."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["trainer", "environment"]
ReportedState = Literal["starting", "working", "done", "failed"]
LeaseState = Literal["absent", "starting", "working", "done", "failed", "lost"]

PEERS: dict[Role, Role] = {"trainer": "environment", "environment": "trainer"}


@dataclass(frozen=True, slots=True)
class Lease:
    """What a side last said of itself, and when (`renewed_at`, seconds of the caller's clock)."""

    state: ReportedState
    reason: str | None
    ttl_seconds: float
    renewed_at: float


@dataclass(frozen=True, slots=True)
class LeaseView:
    """What the other side is told. `lost`: it fell silent without having said `done` or `failed`."""

    state: LeaseState
    reason: str | None = None

    @property
    def gone(self) -> bool:
        return self.state in ("failed", "lost")

    @property
    def live(self) -> bool:
        return self.state in ("starting", "working")


def view(role: Role, lease: Lease | None, now: float) -> LeaseView:
    if lease is None:
        return LeaseView("absent")
    silence = now - lease.renewed_at
    if lease.state in ("starting", "working") and silence > lease.ttl_seconds:
        return LeaseView("lost", f"no heartbeat from the {role} for more than {lease.ttl_seconds:g} seconds")
    return LeaseView(lease.state, lease.reason)
