"""A curriculum over one field of a task: its value is raised once the policy is good at the present one."""

import json
from collections import deque
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Curriculum(BaseModel):
    """`field` of the dataset takes the `levels` in their order. The next one follows when the mean reward of the last
    `window` rollouts at the present one is at least `raise_at`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    field: str = Field(min_length=1)
    levels: list[Any] = Field(min_length=2)
    raise_at: float = Field(default=0.8, gt=0, le=1)
    window: int = Field(default=64, ge=8, le=4096)


class CurriculumProgress:
    """At which level a curriculum is. Without one there is a single level."""

    def __init__(self, curriculum: Curriculum | None) -> None:
        self._curriculum = curriculum
        self._rewards: deque[float] = deque(maxlen=curriculum.window if curriculum else 1)
        self.level = 0

    @property
    def last_level(self) -> int:
        return len(self._curriculum.levels) - 1 if self._curriculum else 0

    def fields_at(self, level: int) -> dict[str, Any]:
        """What the curriculum sets at a level."""
        return {self._curriculum.field: self._curriculum.levels[level]} if self._curriculum else {}

    def rewarded(self, level: int, rewards: Sequence[float]) -> bool:
        """Record a group's rewards; True if they raised the level. Groups of an earlier level do not count."""
        if self._curriculum is None or level != self.level or level == self.last_level:
            return False
        self._rewards.extend(rewards)
        mean = sum(self._rewards) / len(self._rewards)
        if len(self._rewards) < self._curriculum.window or mean < self._curriculum.raise_at:
            return False
        self.level += 1
        self._rewards.clear()
        return True

    def to_state(self) -> str | None:
        return json.dumps({"level": self.level}) if self._curriculum else None

    def restore(self, state: str) -> None:
        """Levels may have become fewer since. Raises ValueError for something else."""
        level = json.loads(state)["level"]
        self.level = min(int(level), self.last_level)
        self._rewards.clear()
