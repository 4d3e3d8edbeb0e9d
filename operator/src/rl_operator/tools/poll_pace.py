"""When the next look at a run is worth its while. Pure."""

from datetime import timedelta
from typing import Final

from rl_operator.api.run import Phase, TrainingRun
from rl_operator.tools.runs import is_draft

SOONEST: Final = 10
LATEST: Final = 1800
"""Seconds between two looks at a run that trains."""

PAUSES: Final[dict[Phase, int]] = {"Pending": 15, "Starting": 15, "Stopping": 5}
"""Seconds, where something is about to happen."""

QUEUED: Final = 60
SHARE: Final = 10
"""A run is looked at about so often in the time that it has left."""

EARLY: Final = timedelta(seconds=60)
"""For no longer an answer stands for a look: whoever asks again after it gets a fresh one."""


def rests(run: TrainingRun) -> bool:
    """Whether nothing is worth waiting for: a draft is one before anybody has looked at it, too."""
    return run.at_rest or is_draft(run)


def next_look(run: TrainingRun) -> int | None:
    """Seconds. None: nothing happens unless somebody asks for it."""
    if rests(run):
        return None
    if run.status.queue is not None:
        return QUEUED
    phase = run.status.phase or "Pending"
    if phase != "Running":
        return PAUSES.get(phase, SOONEST)
    return _while_training(run)


def _while_training(run: TrainingRun) -> int:
    """A share of what is left, and no sooner than the next step."""
    progress = run.status.progress
    if progress is None or progress.eta_seconds is None:
        return PAUSES["Starting"]
    wanted = max(progress.seconds_per_step or 0.0, progress.eta_seconds / SHARE)
    return round(min(max(wanted, SOONEST), LATEST))
