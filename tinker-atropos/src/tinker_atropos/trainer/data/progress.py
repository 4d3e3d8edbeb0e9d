"""Where a run stands: what the weights at the backend have learned, what was counted, what is saved."""

from dataclasses import dataclass

from tinker_atropos.errors import BackendError, RunError

MAX_REBUILDS = 5
"""So many times in a row training is opened again without a new step coming of it."""


@dataclass(slots=True)
class Progress:
    """Steps of a run, counted from its beginning. All of them are the same but for a while after a rebuild.

    weights  trained into the weights that the backend holds for us
    counted  ever trained in this process: logged, and never logged again
    saved    in the newest checkpoint
    """

    total: int
    weights: int = 0
    counted: int = 0
    saved: int = 0
    rebuilds: int = 0
    replayed: int = 0
    _rebuilds_in_a_row: int = 0

    def opened(self, step: int) -> None:
        """Training goes on after `step`: from nothing, or from a checkpoint."""
        self.weights = self.saved = step
        self.counted = max(self.counted, step)

    def trained(self, step: int) -> bool:
        """A step was trained; whether for the first time. A replayed one was counted before."""
        self.weights = step
        if step <= self.counted:
            self.replayed += 1
            return False
        self.counted = step
        self._rebuilds_in_a_row = 0
        return True

    def lost(self, error: RunError) -> None:
        """The backend lost the weights. Raises BackendError when that came of the last rebuilds, too."""
        self._rebuilds_in_a_row += 1
        if self._rebuilds_in_a_row > MAX_REBUILDS:
            raise BackendError(
                f"training was opened again {MAX_REBUILDS} times and failed each time before step {self.counted + 1}: "
                f"{error}"
            ) from error
        self.rebuilds += 1

    def metrics(self) -> dict[str, float]:
        """Nothing while nothing was lost."""
        if not self.rebuilds:
            return {}
        return {"backend/rebuilds": float(self.rebuilds), "backend/steps_replayed": float(self.replayed)}
