"""How long a run still takes: its steps, its checkpoints, and the evaluations that it waits for. Pure.

Each part is measured in this attempt, and counts once it was: the first step, which waits for the environment, is no
measure of the others, and an attempt that continues knows what an evaluation takes only after its first one.
"""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from tinker_atropos.config.run_config import RunConfig

FEWEST_STEPS: Final = 10
MOST_STEPS: Final = 500
SHARE: Final = 0.25
"""The pace is that of this share of the steps so far, the newest ones: answers become longer or shorter in training."""

TREND_SHARE: Final = 0.5
FEWEST_OF_TREND: Final = 12
"""Steps become longer while a task is being solved: more and more groups earn the same and are dropped. How much longer
is seen between the two halves of this share of the steps so far, and goes on for as many steps as there were.
"""

LATE_STEPS: Final = 3
"""So many steps may be trained on groups at hand before an evaluation that is due holds up training."""

SAVES: Final = 20
"""Checkpoints whose mean duration counts."""

UPDATES: Final = 10
"""So often at most the time left is corrected during the final evaluation: clients write down every change."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a run still does besides its steps. `waits` says whether training waits for evaluations in between."""

    total_steps: int
    save_every: int = 0
    evaluate_every: int = 0
    longest_evaluation: float = math.inf
    waits: bool = True

    @classmethod
    def of(cls, config: RunConfig) -> Self:
        env, tinker = config.env, config.tinker
        handling = (env.model_extra or {}).get("eval_handling")
        return cls(
            env.total_steps, tinker.save_checkpoint_interval, env.steps_per_eval, tinker.eval_deadline_seconds,
            waits=handling != "NONE",
        )  # fmt: skip

    def evaluations_after(self, step: int) -> int:
        """The evaluations that training waits for; the final one is not among them."""
        return _multiples(self.evaluate_every, step, self.total_steps - 1) if self.waits else 0

    def saves_after(self, step: int) -> int:
        """At the interval, for evaluations, and at the end."""
        last, both = self.total_steps - 1, math.lcm(self.save_every, self.evaluate_every)
        at_either = _multiples(self.save_every, step, last) + _multiples(self.evaluate_every, step, last)
        return at_either - _multiples(both, step, last) + (step < self.total_steps)


def _multiples(of: int, above: int, up_to: int) -> int:
    """How many multiples of a number are within (above, up_to]; 0 has none."""
    return max(0, up_to // of - above // of) if of else 0


@dataclass(slots=True)
class TimeLeft:
    """Takes what is measured, in seconds. `clock` is a monotonic one."""

    schedule: Schedule
    clock: Callable[[], float] = time.monotonic
    evaluation_seconds: float = 0.0
    _steps: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=MOST_STEPS))
    _saves: deque[float] = field(default_factory=lambda: deque(maxlen=SAVES))
    _evaluations: dict[int, float] = field(default_factory=dict)
    _step: int = 0
    _step_at: float | None = None

    def step_trained(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """A step took so long, the saving before it included."""
        saving = metrics.get("time/saving", 0.0)
        if saving:
            self._saves.append(saving)
        if self._step_at is not None:
            self._steps.append((step, seconds - saving))
        self._step, self._step_at = step, self.clock()

    def evaluated(self, step: int, seconds: float) -> None:
        """The weights of a step were evaluated. Environments tell how long it took: no longer than it is waited for."""
        self.evaluation_seconds = waited = min(max(0.0, seconds), self.schedule.longest_evaluation)
        recent = {at: before for at, before in self._evaluations.items() if at > self._oldest}
        self._evaluations = {**recent, step: waited}

    def seconds(self) -> float | None:
        """After the newest step. It stays until the next one; after the last step it decreases. None: not known yet."""
        if self._step_at is None or not self._steps:
            return None
        if self._step >= self.schedule.total_steps:
            return self._of_the_end(self.clock() - self._step_at)
        steps = self._steps_seconds(self.schedule.total_steps - self._step)
        waits = (self.schedule.evaluations_after(self._step) + self._is_evaluating) * self.evaluation_seconds
        return steps + waits + self.schedule.saves_after(self._step) * self._save_seconds + self._final_seconds

    def _of_the_end(self, passed: float) -> float:
        expected = self._save_seconds + self._final_seconds
        unit = max(1.0, expected / UPDATES)
        return max(0.0, math.ceil((expected - passed) / unit) * unit)

    @property
    def _is_evaluating(self) -> bool:
        """An evaluation is due or in progress, and training will wait for it."""
        every = self.schedule.evaluate_every
        due = self._step // every * every if every else 0
        return self.schedule.waits and due > 0 and due not in self._evaluations and self._step - due <= LATE_STEPS

    @property
    def _final_seconds(self) -> float:
        return self.evaluation_seconds if self.schedule.evaluate_every else 0.0

    @property
    def _save_seconds(self) -> float:
        return sum(self._saves) / len(self._saves) if self._saves else 0.0

    @property
    def _oldest(self) -> int:
        """The first step of which an evaluation may have held up a step that still counts."""
        return self._steps[0][0] - LATE_STEPS - 2 if self._steps else 0

    def _steps_seconds(self, left: int) -> float:
        """The time of the steps that are left, without the evaluations that training waits for: they are counted one
        by one.
        """
        pace = statistics.fmean(self._newest(SHARE, FEWEST_STEPS))
        trend = self._newest(TREND_SHARE, FEWEST_OF_TREND)
        middle = len(trend) // 2
        growth = _growth(trend[:middle], trend[middle:]) if len(trend) >= FEWEST_OF_TREND else 0.0
        if not growth:
            return pace * left
        seen = min(left, len(self._steps))
        ahead = seen - seen * seen / (2 * left)  # of the steps left, on average, if the growth ends after those seen
        later = statistics.fmean(trend[middle:]) + growth * (middle / 2 + ahead) / (len(trend) / 2)
        return max(pace, later) * left

    def _newest(self, share: float, fewest: int) -> list[float]:
        """The seconds of this share of the steps so far, without what they waited for evaluations; oldest first."""
        newest = dict(list(self._steps)[-max(fewest, int(len(self._steps) * share)) :])
        for at, took in self._evaluations.items():
            late, waited = self._waited(at, took, newest)
            if late in newest:
                newest[late] -= waited
        return list(newest.values())

    def _waited(self, at: int, took: float, newest: Mapping[int, float]) -> tuple[int, float]:
        """Which of these steps waited for an evaluation: it is the longest of those that may have; and how long."""
        held_up = [step for step in newest if at < step <= at + LATE_STEPS + 1]
        if not at or not held_up or not self.schedule.waits:
            return 0, 0.0
        late = max(held_up, key=newest.__getitem__)
        return late, min(took, max(0.0, newest[late] - statistics.median(newest.values())))


def _growth(earlier: Sequence[float], later: Sequence[float]) -> float:
    """By how many seconds the steps became longer, as far as that is more than chance; 0 if they did not."""
    chance = math.sqrt(sum(statistics.pvariance(half) / len(half) for half in (earlier, later)))
    return max(0.0, statistics.fmean(later) - statistics.fmean(earlier) - chance)
