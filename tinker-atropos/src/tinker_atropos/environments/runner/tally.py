"""What an environment has done so far. Written in its thread, read in the attendant's."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

HOPELESS_AFTER = 20
"""So many failed rollouts in a row, or refused groups, with none accepted before, end the environment."""


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

    def scored(self, rewards: Iterable[Any]) -> None:
        """A group came out of a rollout, with the rewards of its sequences, before anything is dropped."""
        self.made += 1
        self._rewards.extend(float(reward) for reward in rewards if isinstance(reward, Real))

    def collected(self) -> None:
        """A rollout gave a group."""
        self.failures_in_row = 0

    def failed(self, reason: str) -> None:
        """A rollout raised, or gave nothing."""
        self.failures_in_row += 1
        self.last_failure = reason

    def was_refused(self, groups: int, reason: str) -> None:
        """The trajectory API answered 4xx."""
        self.refused += groups
        self.last_failure = reason

    @property
    def hopeless(self) -> bool:
        """Nothing was ever accepted, and nothing says that this will change."""
        return not self.accepted and max(self.failures_in_row, self.refused) >= HOPELESS_AFTER

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
