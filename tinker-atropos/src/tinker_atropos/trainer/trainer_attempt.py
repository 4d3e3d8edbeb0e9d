"""The life of one attempt, from the first request to the backend to the final report to the trajectory API."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Never

from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.errors import BackendLostError, DivergedError, EnvironmentLostError, RunError
from tinker_atropos.trainer.attempt_end import AttemptEnd
from tinker_atropos.trainer.backend.open_training import Opened, TrainingOpener
from tinker_atropos.trainer.backend.reachability import explained
from tinker_atropos.trainer.data.divergence import diverged
from tinker_atropos.trainer.restarted_loop import RestartedLoop
from tinker_atropos.trainer.stop_request import StopRequest, beside, cancelled, forever, unless_stopped
from tinker_atropos.trainer.trainer_state import TrainerState

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainerAttempt:
    """`companions` never end by themselves, and run as long as the attempt; `vocabulary` is the number of token ids."""

    state: TrainerState
    config: RunConfig
    vocabulary: int
    stop: StopRequest
    loop: RestartedLoop
    ending: AttemptEnd
    companions: Sequence[Callable[[], Coroutine[Any, Any, Never]]]

    async def run(self, opening: TrainingOpener) -> None:
        """Train to the end, or until asked to stop. Otherwise raises the RunError that ended it.

        A lost environment or api ends the loop at a step boundary; a sample that the backend does not answer ends
        everything immediately. So does divergence: such weights are not saved over the last good ones.
        """
        watched = (*(companion() for companion in self.companions), self._environment_lost())
        try:
            await beside(self._live(opening), self._failed(), *(self._stop_when_it_fails(each) for each in watched))
        except DivergedError as error:
            raise diverged(error, self.state.progress.weights, self.config) from error

    async def _live(self, opening: TrainingOpener) -> None:
        opened = await unless_stopped(opening.open(), self.stop)
        if opened is not None:
            await self._begin(opened)
            trouble = await explained(
                self.loop.train(opening),
                opening.url,
                opening.deadline,
                self._backend_owes_answers,
                self.loop.seconds_unanswered,
            )
            if self.state.complete:
                await self._conclude(opening)
                return
            await self.ending.save_what_was_trained(trouble)
        await self.ending.over()

    async def _begin(self, opened: Opened) -> None:
        """The first sample has come back: serve inference, register, and report readiness."""
        weights, reports = self.ending.weights, self.ending.reports
        self.loop.surroundings.opened(opened)
        await unless_stopped(weights.best.check(opened.backend.stored), self.stop)
        self.state.not_ready = "the trainer waits for the trajectory API"
        await unless_stopped(reports.register(self.config, opened.step, self.vocabulary), self.stop)
        self.state.not_ready = None
        self.ending.lease.state = "working"
        weights.write_opened()
        run_id, context = opened.training.run_id, opened.context_length or "an unknown number of"
        model = f"{self.config.base_model} with a context of {context} tokens"
        logger.info("ready: training run %s, step %d, %s", run_id, opened.step, model)

    def _backend_owes_answers(self, why: str | None) -> None:
        """While it trains: the trainer stays ready."""
        self.state.unanswered = why

    async def _conclude(self, opening: TrainingOpener) -> None:
        """Have the final weights evaluated, if possible. No error here can fail the run."""
        try:
            while not await self._evaluated(opening):
                pass
        except RunError as error:
            logger.warning("the final evaluation is lost: %s", error)
        await self.ending.succeeded()

    async def _evaluated(self, opening: TrainingOpener) -> bool:
        """False if the backend was lost in the meantime and the final weights have been reopened."""
        evaluating = asyncio.ensure_future(self.ending.final_evaluation())
        ends: tuple[asyncio.Future[Any], ...] = (evaluating, self.state.weights_lost)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if evaluating.done():
                evaluating.result()
            else:
                self.state.weights_lost.result()
        except BackendLostError as error:
            return not await self.loop.open_again(opening, error)
        finally:
            await cancelled(evaluating)
        return True

    # Failures.

    def sampling_failed(self, error: RunError) -> None:
        """Inference hit an error. After a lost backend the loop restarts; only a complete run survives other errors,
        and not even that one survives weights that have diverged.
        """
        if isinstance(error, BackendLostError):
            self.ending.weights.sampling_lost(error)
        elif not isinstance(error, DivergedError) and (self.state.complete or isinstance(error, EnvironmentLostError)):
            self.stop.ask(error)
        elif not self.state.failed.done():
            self.state.failed.set_exception(error)

    async def _environment_lost(self) -> Never:
        """An environment that ends after training has evaluated the final weights: AttemptEnd waits for it."""
        try:
            await self.ending.lease.environment_lost()
        except EnvironmentLostError:
            if not self.state.complete:
                raise
        await forever()

    async def _failed(self) -> Never:
        await asyncio.shield(self.state.failed)

    async def _stop_when_it_fails(self, companion: Coroutine[Any, Any, Never]) -> Never:
        try:
            await companion
        except DivergedError:
            raise
        except RunError as error:
            self.stop.ask(error)
        await forever()
