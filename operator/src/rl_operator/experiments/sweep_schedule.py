"""When the runs of a sweep train: a few at a time, in their order. Pure."""

from collections import deque
from collections.abc import Mapping

from rl_operator.api.training_run import TrainingRun


class SweepSchedule:
    """`at_once` runs train at the same time. A draft waits for its turn; a run that somebody stopped is not a draft."""

    def __init__(self, runs: Mapping[str, TrainingRun | None], at_once: int) -> None:
        """`runs`: by name, in their order; None: it was deleted."""
        self._at_once = at_once
        self._drafts = deque(name for name, run in runs.items() if run is not None and _is_draft(run))
        self.active = [name for name in runs if name not in self._drafts]

    @property
    def is_over(self) -> bool:
        return not (self.active or self._drafts)

    def end(self, name: str) -> None:
        self.active.remove(name)

    def begin(self) -> list[str]:
        """The drafts whose turn it is. They count as active from now on."""
        free = max(0, self._at_once - len(self.active))
        begun = [self._drafts.popleft() for _ in range(min(free, len(self._drafts)))]
        self.active += begun
        return begun


def _is_draft(run: TrainingRun) -> bool:
    return run.spec.suspend and run.status.start_time is None


def is_over(run: TrainingRun | None) -> bool:
    return run is None or run.at_rest


def has_failed(run: TrainingRun | None) -> bool:
    """Of one that is over: failed, refused, or deleted."""
    return run is None or run.is_refused or run.status.phase == "Failed"
