"""How the time of a stop from outside is spent: what each part may take, in seconds since the stop. Pure.

The pod's grace period is all that there is. The step in progress gets what saving and the last reports leave of it: a
step of a large model takes minutes, and one that does not end costs all steps since the last checkpoint.
"""

from dataclasses import dataclass

DEFAULT_GRACE_SECONDS = 25
"""For a process that nobody has told. A shorter grace period is spent as if it were this long: the sooner, the better.
"""

COUNT_SECONDS = 1.0
FAREWELL_SECONDS = 1.5
CLOSE_SECONDS = 1.0
KEEP_SECONDS = 5.0
"""For the last call of a run that failed, whose result has what it needs, and for the last files of rollouts."""

MARGIN_SECONDS = 1.5
"""Between the end of the process and SIGKILL."""

SHORTEST_STEP, SHORTEST_SAVE, SHORTEST_BY = 10.0, 7.0, 17.0
UNMEASURED_SHARE = 0.25
"""Of the time until everything is saved: what saving gets before it was measured."""

SLOWER = 1.5
"""How much longer the next save may take than the last one."""

SAVE_MARGIN_SECONDS = 3.0

KEPT_SECONDS = 2.0
"""To tell the backend that a checkpoint must not expire."""


@dataclass(frozen=True, slots=True)
class StopSchedule:
    """`grace`: from SIGTERM to SIGKILL; `wandb`: what W&B may take at the end."""

    grace: float = DEFAULT_GRACE_SECONDS
    wandb: float = 4.0

    @property
    def kept_by(self) -> float:
        """When what is saved must have been told not to expire: what comes after that is a count, the last reports and
        the last files.
        """
        after = COUNT_SECONDS + FAREWELL_SECONDS + CLOSE_SECONDS + self.wandb + KEEP_SECONDS + MARGIN_SECONDS
        return max(SHORTEST_BY, self.grace - after)

    @property
    def saved_by(self) -> float:
        """When the weights must be saved, or an earlier checkpoint is the one that is kept."""
        return self.kept_by - KEPT_SECONDS

    def step_by(self, save_seconds: float | None) -> float:
        """How long the step in progress may go on. `save_seconds`: what saving took last time; None: not known yet."""
        if save_seconds is None:
            saving = max(SHORTEST_SAVE, UNMEASURED_SHARE * self.saved_by)
        else:
            saving = max(SHORTEST_SAVE, SLOWER * save_seconds + SAVE_MARGIN_SECONDS)
        return max(SHORTEST_STEP, self.saved_by - saving)
