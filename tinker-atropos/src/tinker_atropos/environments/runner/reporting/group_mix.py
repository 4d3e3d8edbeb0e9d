"""Of the groups that an environment made lately, sent or not: in how many all rollouts were right, or all wrong."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Mix = Literal["all_right", "all_wrong", "mixed"]
MIXES: Final[tuple[Mix, ...]] = ("all_right", "all_wrong", "mixed")
RECENT: Final = 100

IsCorrect = Callable[[float], bool]


def has_full_reward(reward: float) -> bool:
    """Of environments that do not say which rewards are right."""
    return reward >= 1.0


@dataclass
class GroupMix:
    """Written in the environment's thread, read in the heartbeat's."""

    _recent: deque[Mix] = field(default_factory=lambda: deque(maxlen=RECENT))

    def add(self, rewards: Sequence[float], is_correct: IsCorrect) -> None:
        right = sum(map(is_correct, rewards))
        if rewards:
            self._recent.append("all_right" if right == len(rewards) else "mixed" if right else "all_wrong")

    def to_metrics(self) -> dict[str, float]:
        """Fractions, which add up to 1; empty without groups."""
        recent = list(self._recent)
        return {f"env/groups_{mix}": recent.count(mix) / len(recent) for mix in MIXES} if recent else {}
