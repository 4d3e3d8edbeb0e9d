"""The weights being trained: opened, saved, lost, and reopened."""

import asyncio
import logging
import time
from dataclasses import dataclass

from rl_contract.trainer_messages import ResultCheckpoint
from rl_contract.wire import timestamp
from tinker_atropos.errors import BackendLostError, RunError
from tinker_atropos.trainer.backend.checkpoints import BesideWeights, CheckpointKeeper
from tinker_atropos.trainer.backend.open_training import Opened
from tinker_atropos.trainer.backend.policy import Policy
from tinker_atropos.trainer.best_weights import BestWeights, Candidate
from tinker_atropos.trainer.trainer_state import TrainerState, no_failure
from tinker_atropos.trainer.trajectories.api_client import ApiClient

logger = logging.getLogger(__name__)

ITEMS_SECONDS = 3.0
"""A process that is stopped has a few seconds for all that it saves."""


@dataclass(frozen=True)
class CurrentWeights:
    state: TrainerState
    keeper: CheckpointKeeper
    best: BestWeights
    api: ApiClient

    def continue_with(self, opened: Opened) -> None:
        """Train these from now on, and sample from them."""
        state = self.state
        state.opened = opened
        state.weights_lost = no_failure()
        state.progress.opened(opened.step)
        state.status.step = state.progress.counted
        state.status.from_step = opened.step if state.status.from_step is None else state.status.from_step
        if opened.data_from and state.status.environment_state is None:
            state.status.environment_state = opened.data_from.beside.environment_state
        state.items = opened.data_from.beside.items if opened.data_from else None
        if opened.resumed and opened.resumed.beside.stopped_early:
            state.ends_early(opened.step, opened.resumed.beside.stopped_early)
        if opened.lost:
            state.status.warn("checkpoint", f"training restarted from step {opened.step}: {opened.lost}")
        state.status.training_run_id = opened.training.run_id
        state.status.checkpoint = opened.resumed.message if opened.resumed else None
        state.policy.swap(Policy(opened.step, opened.sampler), opened=True)

    def write_opened(self) -> None:
        """Write to the result what is trained, and which checkpoint it came from."""
        opened = self.state.session
        self.state.results.write(
            from_step=self.state.status.from_step,
            steps_trained=opened.step,
            training_run_id=opened.training.run_id,
            state_path=opened.resumed.path if opened.resumed else None,
            checkpoint=ResultCheckpoint(expires_at=opened.resumed and timestamp(opened.resumed.expires_at)),
        )

    async def save(self, *, forever: bool) -> None:
        """Save their state. The final one, and the one that a stop saves, is `forever`."""
        state, status = self.state, self.state.status
        final, begun = state.progress.weights == state.progress.total, time.monotonic()
        await self._note_items(state.progress.weights)
        checkpoint = await self.keeper.save_state(
            state.session.training,
            state.progress.weights,
            BesideWeights(status.environment_state, state.items, status.stopped_early if final else None),
            forever=forever,
        )
        state.save_seconds = time.monotonic() - begun
        state.progress.saved = checkpoint.step
        state.status.checkpoint = checkpoint.message
        state.results.write(
            steps_trained=checkpoint.step,
            state_path=checkpoint.path,
            checkpoint=ResultCheckpoint(expires_at=timestamp(checkpoint.expires_at)),
            metrics=state.metrics,
        )

    async def _note_items(self, step: int) -> None:
        """Weights are worth more than where they are in the data: without an answer the last one that is known stays,
        and some items come again.
        """
        try:
            self.state.items = await asyncio.wait_for(self.api.items(step), ITEMS_SECONDS)
        except (TimeoutError, RunError) as error:
            logger.warning("the trajectory API does not say which items are trained after step %d: %r", step, error)

    async def save_for_inference(self) -> None:
        """Save the final sampler weights, once all steps are trained."""
        stopped_early = self.state.status.stopped_early is not None
        path = await self.keeper.save_sampler(
            self.state.session.training, self.state.progress.total, stopped_early=stopped_early
        )
        self.state.results.write(sampler_path=path)
        self._to_evaluate(self.state.progress.total, path)

    async def save_for_evaluation(self, step: int) -> None:
        """Save the sampler weights of the state that was saved last: they may turn out to be the best."""
        path = await self.keeper.save_sampler(self.state.session.training, step, forever=False)
        self._to_evaluate(step, path)

    def _to_evaluate(self, step: int, sampler_path: str) -> None:
        result = self.state.results.result
        if result.state_path is not None:
            self.best.saved(step, Candidate(result.state_path, sampler_path, result.checkpoint.expires_at))

    def sampling_lost(self, error: BackendLostError) -> None:
        """A sampler is gone. Samplers of sessions that were already abandoned say nothing about these weights."""
        opened, lost = self.state.opened, self.state.weights_lost
        if opened is not None and error.training_run_id == opened.training.run_id and not lost.done():
            lost.set_exception(error)
