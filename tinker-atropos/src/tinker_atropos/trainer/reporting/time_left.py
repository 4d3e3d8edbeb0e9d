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

from tinker_atropos.config import RunConfig

FEWEST_STEPS: Final = 10
MOST_STEPS: Final = 500
SHARE: Final = 0.25
"""The pace is that of this share of the steps so far, the newest ones: answers become longer or shorter in training."""

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
        """That training waits for; the final one is not among them."""
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
        steps = self._pace() * (self.schedule.total_steps - self._step)
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

    def _pace(self) -> float:
        """Seconds per step, without the evaluations that training waited for: they are counted one by one."""
        counted = max(FEWEST_STEPS, int(len(self._steps) * SHARE))
        newest = list(self._steps)[-counted:]
        waited = sum(self._waited(at, took, newest) for at, took in self._evaluations.items())
        return (sum(seconds for _, seconds in newest) - waited) / len(newest)

    def _waited(self, at: int, took: float, newest: Sequence[tuple[int, float]]) -> float:
        """Of these steps, the one that waited for an evaluation is the longest of those that may have."""
        held_up = [seconds for step, seconds in newest if at < step <= at + LATE_STEPS + 1]
        if not at or not held_up or not self.schedule.waits:
            return 0.0
        return min(took, max(0.0, max(held_up) - statistics.median(seconds for _, seconds in newest)))
