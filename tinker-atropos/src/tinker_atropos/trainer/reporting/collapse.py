"""Whether the policy has become worse. Pure.

It has declined when a run's figures have fallen far below their best. The last weights of such a run are not its best
ones, and nothing else says so: it goes on to succeed. The sentence for people stays the same meanwhile.

It has collapsed when it was better, and its groups no longer hold anything to learn from.

Groups of equal rewards alone say little: a policy that has learned everything makes them, too, and so does one that
never learned. Collapse is both at once: rewards have fallen below half of the best, and a row of equal groups is so
long that chance does not explain it. At the rate of mixed groups before the row, EXPECTED_MIXED of them were due within
it: if that rate still held, a row without any had a probability of about exp(-EXPECTED_MIXED), two in a billion. A task
that is rarely solved has such rows often, and needs a longer one.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from tinker_atropos.trainer.reporting.wait_reasons import GroupsMade

FAR_BELOW = 0.75
"""Share of the best figure."""

DECLINED_EVALUATIONS = 3
"""So many in a row are not the noise of one evaluation."""

DECLINED_STEPS = 10
SMOOTHING = 0.2
"""Weight of the newest step in the smoothed reward: single batches are noisy."""


@dataclass(slots=True)
class Decline:
    """One figure over the steps of a run. Without a best above 0 there is no share of it, and no decline."""

    figure: str
    patience: int
    smoothing: float = 1.0
    sentence: str | None = None
    _value: float | None = None
    _best: tuple[float, int] = (0.0, 0)
    _low: int = 0
    _last_step: int = -1

    def add(self, step: int, value: float) -> None:
        """Take in the figure of a later step than the last; another report of the same step changes nothing."""
        if step <= self._last_step:
            return
        self._last_step = step
        before = value if self._value is None else self._value
        self._value = (1 - self.smoothing) * before + self.smoothing * value
        if self._value >= self._best[0]:
            self._best = (self._value, step)
        best, of_step = self._best
        self._low = self._low + 1 if best > 0 and self._value < FAR_BELOW * best else 0
        if not self._low:
            self.sentence = None
        elif self._low == self.patience:
            self.sentence = (
                f"{self.figure} is far below its best: {self._value:.3g} after step {step}, {best:.3g} after step "
                f"{of_step}; the last weights are not the best ones, and a lower trainer.learning_rate may be needed"
            )


def held_out_decline() -> Decline:
    return Decline("held-out accuracy", DECLINED_EVALUATIONS)


def reward_decline() -> Decline:
    return Decline("the rollout reward of recent steps", DECLINED_STEPS, SMOOTHING)


MIN_ROW = 100
"""Fewer equal groups in a row are never collapse."""

EXPECTED_MIXED = 20.0
FALLEN_BELOW = 0.5
"""Share of the best reward."""

REWARD_GROUPS = 10
"""Rewards are means over at least so many groups."""


@dataclass(slots=True)
class CollapseWatch:
    """The groups of one attempt: a new one starts to count again, from weights that had not collapsed when saved."""

    _made: float = 0.0
    _mixed: float = 0.0
    _row: float = 0.0
    _best: tuple[float, int] = (-math.inf, 0)
    _low: float = 0.0
    fallen: str | None = None
    _recent: deque[tuple[float, float]] = field(default_factory=deque)

    def report(self, made: GroupsMade, reward: float | None, step: int) -> str | None:
        """Take in what an environment made since its last report, and those groups' mean reward, at a step.

        Returns what has happened if the policy has collapsed.
        """
        equal = made.equal + (made.withheld if reward is not None else 0.0)  # else they say nothing
        if made.kept:  # when among the others is unknown: the row begins after them
            self._made += self._row + equal + made.kept
            self._mixed += made.kept
            self._row = 0.0
        else:
            self._row += equal
        if reward is None:
            return None
        scored = made.kept + made.equal or made.withheld or 1.0  # the reward is of those withheld if of nothing else
        mean = self._mean_with(scored, reward)
        if mean is None:
            return None
        if mean > self._best[0]:
            self._best = (mean, step)
        self._watch_reward(mean, scored)
        due = self._row * self._mixed / self._made if self._made else 0.0
        if self._row < MIN_ROW or due < EXPECTED_MIXED or not self._is_low(mean):
            return None
        best, of_step = self._best
        return (
            f"the policy has collapsed: the rewards of each of the last {self._row:.0f} groups were equal, with a mean "
            f"of {mean:.3g}, and the best mean over {REWARD_GROUPS} groups or more was {best:.3g}, after step {of_step}"
        )

    def _watch_reward(self, mean: float, groups: float) -> None:
        """`fallen` is a warning, once the reward has been low for MIN_ROW groups: it may still recover."""
        self._low = self._low + groups if self._is_low(mean) else 0.0
        if not self._low:
            self.fallen = None
        elif self._low >= MIN_ROW and self.fallen is None:
            best, step = self._best
            self.fallen = f"the rollout reward has fallen below half of its best, {best:.3g} after step {step}"

    def _is_low(self, mean: float) -> bool:
        best, _ = self._best
        return best > 0 and mean < FALLEN_BELOW * best

    def _mean_with(self, groups: float, reward: float) -> float | None:
        """The mean reward of the last REWARD_GROUPS groups, or of a few more; None as long as there are fewer."""
        self._recent.append((groups, reward))
        total = sum(count for count, _ in self._recent)
        while total - self._recent[0][0] >= REWARD_GROUPS:
            total -= self._recent.popleft()[0]
        return sum(count / total * each for count, each in self._recent) if total >= REWARD_GROUPS else None
