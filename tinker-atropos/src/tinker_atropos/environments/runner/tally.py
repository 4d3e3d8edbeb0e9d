"""What an environment has done so far. Written in its thread, read in the attendant's."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Groups made, kept (sent), accepted (answered 200) and refused (answered 4xx), and rollouts that failed.

    Groups that are made and not kept were dropped by atroposlib: equal rewards, too long, or of the wrong size.
    """

    made: int = 0
    kept: int = 0
    accepted: int = 0
    refused: int = 0
    failures_in_row: int = 0
    last_failure: str | None = None
    _rewards: deque[float] = field(default_factory=deque)

    @property
    def filtered(self) -> int:
        return max(0, self.made - self.kept)

    def scored(self, rewards: Iterable[float]) -> None:
        """A group came out of a rollout, with the rewards of its sequences, before anything is dropped."""
        self.made += 1
        self._rewards.extend(rewards)

    def failed(self, reason: str) -> None:
        self.failures_in_row += 1
        self.last_failure = reason

    def take_metrics(self) -> dict[str, float]:
        """The runner's metrics since the last call; empty when no group came out since then."""
        rewards = [self._rewards.popleft() for _ in range(len(self._rewards))]
        if not rewards:
            return {}
        return {
            "env/reward_mean": sum(rewards) / len(rewards),
            "env/groups_kept": self.kept,
            "env/groups_filtered": self.filtered,
        }

    def to_wire(self) -> dict[str, int | str | None]:
        """For people who look at the ops port's `/status`."""
        return {
            "groupsMade": self.made,
            "groupsKept": self.kept,
            "groupsAccepted": self.accepted,
            "groupsRefused": self.refused,
            "lastFailure": self.last_failure,
        }
