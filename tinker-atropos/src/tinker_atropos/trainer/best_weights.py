"""The weights with the best held-out figure are kept, whatever is trained after them.

When an evaluation is due, state and sampler weights of that step are saved; its result comes later, and decides. Until
then they are candidates, which are never deleted. An evaluation of other weights (the first one, of weights that are
not trained yet) cannot be the best.
"""

import asyncio
import logging
from dataclasses import dataclass

from rl_contract.status_metrics import EvaluatedFigure
from rl_contract.trainer_messages import BestCheckpoint, ResultBest
from tinker_atropos.errors import RunError
from tinker_atropos.trainer.backend.checkpoints import CheckpointKeeper
from tinker_atropos.trainer.trainer_state import TrainerState

logger = logging.getLogger(__name__)

CANDIDATES = 2
"""Newest candidates that are kept, besides the one of the evaluation that began last."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Saved weights that wait for their figure."""

    state_path: str
    sampler_path: str
    expires_at: str | None


class BestWeights:
    """`state.status.best` and the result's are written here. `found` is what earlier attempts left."""

    def __init__(self, state: TrainerState, keeper: CheckpointKeeper, found: BestCheckpoint | None) -> None:
        self._state = state
        self._keeper = keeper
        self._candidates: dict[int, Candidate] = {}
        self._figures: dict[int, EvaluatedFigure] = {}
        self._released: set[str] = set()
        self._set(found)

    @property
    def best(self) -> BestCheckpoint | None:
        return self._state.status.best

    @property
    def needed(self) -> set[str]:
        """Paths that nothing may delete."""
        candidates = self._candidates.values()
        paths = {path for each in candidates for path in (each.state_path, each.sampler_path)}
        return paths | ({self.best.state_path, self.best.sampler_path} if self.best else set())

    async def check(self) -> None:
        """Forget the best weights of earlier attempts if the backend no longer has them, and release what else those
        attempts left. Never raises a RunError.
        """
        try:
            there = await self._keeper.stored.list()
        except RunError as error:
            logger.warning("what earlier attempts left at the backend is not known: %s", error)
            return
        best, paths = self.best, {checkpoint.path for checkpoint in there}
        if best is not None and not {best.state_path, best.sampler_path} <= paths:
            sentence = f"the best weights so far, of step {best.step}, are no longer at the backend ({best.state_path})"
            logger.warning("%s", sentence)
            self._state.status.warn("best", sentence)
            self._set(None)
        for checkpoint in self._keeper.samplers_of_earlier_attempts(there):
            self._release(checkpoint.path)

    def saved(self, step: int, candidate: Candidate) -> None:
        """The weights of a step that is to be evaluated are saved."""
        if (replaced := self._candidates.get(step)) is not None:  # the step was trained again
            self._release(replaced.sampler_path)
        self._candidates[step] = candidate
        for older in sorted(self._candidates)[:-CANDIDATES]:
            if older != self._state.policy.evaluated_last:
                self._release(self._candidates.pop(older).sampler_path)
        self._decide(step)

    def evaluated(self, step: int, figure: EvaluatedFigure) -> None:
        """The held-out figure of a step is known."""
        self._figures = {step: figure}
        self._decide(step)

    def _decide(self, step: int) -> None:
        """Once both are known; results arrive in the order of steps. Of equal figures the earlier step stays best."""
        if step not in self._candidates or step not in self._figures:
            return
        candidate, figure, former = self._candidates.pop(step), self._figures.pop(step), self.best
        for passed in [other for other in self._candidates if other < step]:
            self._release(self._candidates.pop(passed).sampler_path)
        if former is not None and figure.value <= former.held_out.value:
            self._release(candidate.sampler_path)
            return
        self._set(
            BestCheckpoint(
                step=step,
                held_out=figure,
                state_path=candidate.state_path,
                sampler_path=candidate.sampler_path,
                expires_at=candidate.expires_at,
            )
        )
        if former is not None:
            self._release(former.sampler_path)
        logger.info("step %d is the best so far: held-out figure %.4g", step, figure.value)

    def _release(self, sampler_path: str) -> None:
        """Its state is an ordinary checkpoint from now on, which `CheckpointKeeper.tidy` deletes in its turn."""
        self._released.add(sampler_path)

    def _set(self, best: BestCheckpoint | None) -> None:
        self._state.status.best = best
        self._state.results.hold(best=best and ResultBest.of(best))
        if self._state.opened is not None:  # before that a start has nothing to report
            self._state.results.write()

    async def tidy(self) -> None:
        """Let the best never expire, and delete what is no longer needed. Raises InternalError as the keeper does."""
        await self._keeper.tidy(spared=self.needed)
        await self.keep()
        await self._delete_released()

    async def _delete_released(self) -> None:
        """What is not deleted now is tried again next time."""
        final = self._state.results.result.sampler_path
        for path in sorted(self._released - self.needed - {final}):
            try:
                await self._keeper.stored.delete(path)
            except RunError as error:
                logger.warning("weights of an evaluation could not be deleted: %s", error)
                if isinstance(error.__cause__, TimeoutError):
                    return  # each of the others might take as long
            else:
                self._released.discard(path)

    async def keep(self, seconds: float | None = None) -> None:
        """Let the best never expire. Never raises a RunError: if the backend does not do that, or not within `seconds`,
        that is a warning.
        """
        try:
            await asyncio.wait_for(self._keep(), seconds)
        except TimeoutError:
            logger.warning("the best weights may expire: no answer within %g s", seconds)
        except RunError as error:
            logger.warning("the best weights may expire: %s", error)

    async def _keep(self) -> None:
        if self.best is not None and self.best.expires_at is not None:
            await self._keeper.stored.keep_forever(self.best.state_path)
            await self._keeper.stored.keep_forever(self.best.sampler_path)
            self._set(self.best.with_changes(expires_at=None))
