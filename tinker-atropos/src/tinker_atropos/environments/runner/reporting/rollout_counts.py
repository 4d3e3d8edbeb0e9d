"""Rollouts, one by one: how many came to a score, how many failed and how. Groups are counted in `counters.py`."""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from tinker_atropos.environments.rollout.rollouts import FAILURE_KINDS, FailedRollout, FailureKind

RECENT: Final = 200
MIN_RECENT: Final = 20
TOO_MANY: Final = 0.2
"""Share of the recent rollouts, once there are MIN_RECENT, past which their failing is a warning."""


@dataclass
class RolloutCounts:
    """Written in the environment's thread, read in the heartbeat's."""

    made: int = 0
    failed_by: Counter[FailureKind] = field(default_factory=Counter)
    last_failure: str = ""
    _recent: deque[FailureKind | None] = field(default_factory=lambda: deque(maxlen=RECENT))

    def were_scored(self, rollouts: int) -> None:
        self.made += rollouts
        self._recent.extend([None] * rollouts)

    def has_failed(self, rollout: FailedRollout) -> None:
        self.failed_by[rollout.kind] += 1
        self.last_failure = rollout.message
        self._recent.append(rollout.kind)

    @property
    def warning(self) -> str | None:
        """A sentence for the run's status while too many fail; None otherwise."""
        recent = list(self._recent)
        kinds = Counter(kind for kind in recent if kind is not None)
        failed = kinds.total()
        if len(recent) < MIN_RECENT or failed <= TOO_MANY * len(recent):
            return None
        by_kind = ", ".join(f"{count} {WHY[kind]}" for kind, count in kinds.most_common())
        return f"{failed} of the last {len(recent)} rollouts failed ({by_kind}); the last one with {self.last_failure}"

    def to_metrics(self) -> dict[str, float]:
        by_kind = {f"env/rollouts_failed_{kind}": float(self.failed_by[kind]) for kind in FAILURE_KINDS}
        return {"env/rollouts_failed": float(self.failed_by.total()), **by_kind}


WHY: Final[dict[FailureKind, str]] = {
    "raised": "raised an error",
    "timeout": "took too long",
    "transport": "lost their server",
}
