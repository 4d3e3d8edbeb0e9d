"""The axis of a run's points: which are new, and where they belong."""

from collections.abc import Mapping
from dataclasses import dataclass, field

STEP_KEY = "train/step"
REPORTED_STEP_KEY = "env/step"
"""The environment's own step, in a report that arrives when the last trained step is another one."""

Point = dict[str, float]


@dataclass
class StepAxis:
    """The axis never goes back, across rebuilds and attempts.

    `before` is the last step that earlier attempts logged, `last` the newest of all; `replayed` counts what is not
    logged again.
    """

    before: int
    last: int = field(init=False)
    replayed: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.last = self.before

    def trained(self, step: int, metrics: Mapping[str, float]) -> Point | None:
        """The point of a trained step; None for one that is trained again and was logged before."""
        if step <= self.last:
            self.replayed += 1
            return None
        self.last = step
        return {STEP_KEY: step, **metrics}

    def reported(self, step: int | None, metrics: Mapping[str, float]) -> Point | None:
        """The point of an environment's report; None for a step that an earlier attempt reported."""
        if step is not None and step < self.before:
            self.replayed += 1
            return None
        own = {} if step in (None, self.last) else {REPORTED_STEP_KEY: float(step or 0)}
        return {STEP_KEY: self.last, **own, **metrics}
