"""Whether a run's figures have fallen far below their best: a sentence for people that stays the same meanwhile. Pure.

The last weights of a run are not its best ones if it has declined, and nothing else says so: it goes on to succeed.
"""

from dataclasses import dataclass

FAR_BELOW = 0.75
"""Share of the best figure."""

EVALUATIONS = 3
"""So many in a row are not the noise of one evaluation."""

STEPS = 10
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
                f"{of_step}; the last weights are not the best ones, and a lower tinker.learning_rate may be needed"
            )


def held_out_decline() -> Decline:
    return Decline("held-out accuracy", EVALUATIONS)


def reward_decline() -> Decline:
    return Decline("the mean reward of recent steps", STEPS, SMOOTHING)
