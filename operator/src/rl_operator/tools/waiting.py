"""Waiting for a run, within a deadline: one read of the run per look."""

import time
from collections.abc import Callable

from rl_operator.api.run import TrainingRun
from rl_operator.tools.desk import Desk
from rl_operator.tools.polls import looked_at


def awaited(desk: Desk, run: TrainingRun, holds: Callable[[TrainingRun], bool], seconds: float) -> TrainingRun:
    """The run once it holds, or as it is when the time is over, which the door's own limit shortens.

    Raises GoneError as soon as the run is deleted.
    """
    deadline = time.monotonic() + min(seconds, desk.longest_wait)
    while not holds(run):
        left = deadline - time.monotonic()
        if left <= 0 or not desk.pause(min(desk.backend.poll_seconds, left)):
            return run
        run = looked_at(desk, run)
    return run
