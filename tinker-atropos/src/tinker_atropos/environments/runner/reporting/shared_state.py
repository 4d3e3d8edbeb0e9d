"""What the environment's thread publishes for the heartbeat: its state, its counts and its metrics."""

from dataclasses import dataclass, field

from rl_contract.processes import ReportedState
from tinker_atropos.environments.runner.reporting.counters import Counters
from tinker_atropos.environments.runner.reporting.rollout_reports import RolloutReports
from tinker_atropos.environments.runner.reporting.wandb_relay import MetricsQueue


@dataclass
class SharedState:
    """One writer (the environment's thread), one reader (the heartbeat's)."""

    total_steps: int
    phase: str = "starting"
    lease_state: ReportedState = "starting"
    reason: str | None = None
    step: int = 0
    grader_warnings: tuple[str, ...] = ()
    item_warnings: list[str] = field(default_factory=list)
    environment_state: str | None = None
    counters: Counters = field(default_factory=Counters)
    metrics: MetricsQueue = field(default_factory=MetricsQueue)
    rollouts: RolloutReports = field(default_factory=RolloutReports)

    @property
    def lease_reason(self) -> str | None:
        """What the environment is doing while it runs; afterward why it ended, if there is more to report."""
        return self.phase if self.lease_state in ("starting", "working") else self.reason

    @property
    def warnings(self) -> list[str]:
        """Sentences for the run's status that stand now."""
        failing = self.counters.rollouts.warning
        return [*([failing] if failing else []), *self.grader_warnings, *self.item_warnings]

    def unready(self) -> str | None:
        """Why the container is not ready: it is ready once the trajectory API has accepted its first group."""
        counters = self.counters
        if counters.accepted:
            return None
        dropped = f"{counters.filtered} dropped, {counters.refused} refused, {counters.failed} failed"
        counts = f"{counters.made} groups made, {dropped}"
        failure = f"; last failure: {counters.last_failure}" if counters.last_failure else ""
        stalled = f"; {counters.stalled}" if counters.stalled else ""
        return f"no group accepted yet: {self.phase} ({counts}){failure}{stalled}"

    def to_wire(self) -> dict[str, object]:
        state = {"phase": self.phase, "step": self.step, "totalSteps": self.total_steps}
        return {**state, "warnings": self.warnings, **self.counters.to_wire()}
