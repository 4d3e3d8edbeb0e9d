"""What the environment's thread writes up for the attendant's: where it stands, its counts and its metrics."""

from dataclasses import dataclass, field
from typing import Any, Literal

from tinker_atropos.environments.runner.counters import Tally
from tinker_atropos.environments.runner.wandb_relay import MetricsQueue

LeaseState = Literal["starting", "working", "done", "failed"]


@dataclass
class Board:
    """One writer (the environment's thread), one reader (the attendant's)."""

    total_steps: int
    phase: str = "starting"
    lease_state: LeaseState = "starting"
    reason: str | None = None
    step: int = 0
    tally: Tally = field(default_factory=Tally)
    metrics: MetricsQueue = field(default_factory=MetricsQueue)

    @property
    def lease_reason(self) -> str | None:
        """What the environment does while it lives; afterwards why it ended, if there is more to say."""
        return self.phase if self.lease_state in ("starting", "working") else self.reason

    def unready(self) -> str | None:
        """Why the container is not ready: it is from the first group that the trajectory API accepted."""
        tally = self.tally
        if tally.accepted:
            return None
        counts = f"{tally.made} groups made, {tally.filtered} dropped, {tally.refused} refused, {tally.failed} failed"
        failure = f"; last failure: {tally.last_failure}" if tally.last_failure else ""
        stalled = f"; {tally.stalled}" if tally.stalled else ""
        return f"no group accepted yet: {self.phase} ({counts}){failure}{stalled}"

    def to_wire(self) -> dict[str, Any]:
        return {"phase": self.phase, "step": self.step, "totalSteps": self.total_steps, **self.tally.to_wire()}
