"""Which groups of equal rewards are dropped, so that the environment makes others in their place."""

from collections.abc import Sequence
from typing import Any

from tinker_atropos.environments.runner.reporting.counters import Counters, finite_rewards
from tinker_atropos.environments.runner.reporting.group_mix import IsCorrect


class EqualGroups:
    """Of one environment. A group that is not all right is always dropped. Those that are all right say that the task
    may be solved, and then the next group to learn from costs ever more: at most `max_all_right` in a row are dropped,
    and further ones sent until there is one to learn from. None: all are dropped.
    """

    def __init__(self, max_all_right: int | None, counters: Counters) -> None:
        self._max_all_right, self._counters = max_all_right, counters
        self._dropped_in_row = 0

    def drops(self, rewards: Sequence[Any], is_correct: IsCorrect) -> bool:
        """Whether the next group, of these rewards, is dropped. Otherwise it is sent."""
        if len(set(rewards)) != 1:
            self._dropped_in_row = 0
            return False
        if not all(map(is_correct, finite_rewards(rewards) or [0.0])):
            return True
        if self._dropped_in_row == self._max_all_right:
            self._counters.kept_all_right += 1
            return False
        self._dropped_in_row += 1
        return True
