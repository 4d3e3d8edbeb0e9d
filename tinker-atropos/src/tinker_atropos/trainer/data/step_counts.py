"""The progress of a run: what is trained into the weights at the backend, what was counted, what is saved."""

from dataclasses import dataclass

from tinker_atropos.errors import BackendError, RunError

MAX_REBUILDS = 5
"""How many times in a row training is reopened without a new step being trained."""


@dataclass(slots=True)
class StepCounts:
    """Steps of a run, counted from its beginning. `weights` and `counted` differ only for a while after a rebuild.

    weights   trained into the weights that the backend holds
    counted   ever trained in this process; each is logged once
    reported  of `weights`, as the trajectory API knows it
    saved     in the newest checkpoint
    """

    total: int
    """The last step: of the config or, after an early stop, the one that it ended with."""
    weights: int = 0
    counted: int = 0
    reported: int = 0
    saved: int = 0
    rebuilds: int = 0
    replayed: int = 0
    _rebuilds_in_a_row: int = 0

    def opened(self, step: int) -> None:
        """Training continues after `step`: from scratch, or from a checkpoint."""
        self.weights = self.reported = self.saved = step
        self.counted = max(self.counted, step)

    def trained(self, step: int) -> bool:
        """A step was trained. Returns whether for the first time: a replayed one was counted before."""
        self.weights = step
        if step <= self.counted:
            self.replayed += 1
            return False
        self.counted = step
        self._rebuilds_in_a_row = 0
        return True

    def lost(self, error: RunError) -> None:
        """The backend lost the weights. Raises BackendError if the last MAX_REBUILDS rebuilds ended this way too."""
        self._rebuilds_in_a_row += 1
        if self._rebuilds_in_a_row > MAX_REBUILDS:
            raise BackendError(
                f"training was opened again {MAX_REBUILDS} times and failed each time before step {self.counted + 1}: "
                f"{error}"
            ) from error
        self.rebuilds += 1

    def metrics(self) -> dict[str, float]:
        """Empty as long as nothing was lost."""
        if not self.rebuilds:
            return {}
        return {"backend/rebuilds": float(self.rebuilds), "backend/steps_replayed": float(self.replayed)}
