"""A run that ends before its last step, as a success: by `trainer.early_stopping`.

Evaluations arrive while training goes on. The first one that decides asks for the end, which is at the next step
boundary; the weights of that step are saved and evaluated as those of a last step are. Their checkpoint says that the
run is over (`Checkpoint.stopped_early`), so an attempt that continues from it trains nothing.
"""

import logging
from dataclasses import dataclass, field
from typing import Final

from rl_contract.status_metrics import EvaluatedFigure
from rl_contract.trainer_messages import BestCheckpoint
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.trainer.stop_request import StopRequest
from tinker_atropos.trainer.trainer_state import TrainerState

logger = logging.getLogger(__name__)

SHOWN: Final = "{:.4g}".format


def why_to_stop(figure: float, step: int, best: BestCheckpoint | None, config: RunConfig) -> str | None:
    """Why a run ends after the evaluation of `step`, or None. `best` is the best before it.

    Patience counts evaluations that were due since the best one, whether or not all were made. So it depends on nothing
    that an attempt after a lost machine would not know.
    """
    early, every = config.tinker.early_stopping, config.env.steps_per_eval
    stop_at, patience = early.stop_at, early.patience
    if stop_at is not None and figure >= stop_at:
        return f"held-out {SHOWN(figure)} of step {step} reached trainer.early_stopping.stop_at {SHOWN(stop_at)}"
    if not patience or best is None or figure > best.held_out.value:
        return None
    without = step // every - best.step // every
    if without < patience:
        return None
    evaluations = "evaluation" if without == 1 else "evaluations"
    return (
        f"no better held-out figure in {without} {evaluations} (trainer.early_stopping.patience {patience}) than "
        f"{SHOWN(best.held_out.value)} of step {best.step}"
    )


@dataclass
class EarlyStop:
    """`request` is asked once an evaluation has decided."""

    state: TrainerState
    config: RunConfig
    request: StopRequest = field(default_factory=StopRequest)
    reason: str | None = None

    def evaluated(self, step: int, figure: EvaluatedFigure) -> None:
        """A held-out figure is known, and `state.status.best` is still the best before it. What the weights before the
        first step can do says nothing about training.
        """
        if self.reason is not None or not 0 < step < self.state.progress.total:
            return
        self.reason = why_to_stop(figure.value, step, self.state.status.best, self.config)
        if self.reason is not None:
            logger.info("training ends with the step in progress: %s", self.reason)
            self.request.ask()

    @property
    def at_boundary(self) -> bool:
        """Whether the weights are those of the newest step, so that the run may end with them. Steps that are trained
        again after the backend was lost are trained to where they were before.
        """
        return self.state.progress.weights == self.state.progress.counted

    def end_here(self) -> bool:
        """Make the newest step the last one, if an evaluation asked for that. Returns whether it is to be saved."""
        step = self.state.progress.weights
        if self.reason is None or not self.at_boundary or step >= self.state.progress.total:
            return False
        self.state.ends_early(step, self.reason)
        return True
