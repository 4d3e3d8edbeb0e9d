"""The training loop as often as it has to be begun: each time the backend is lost, it continues from a checkpoint."""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any

from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.errors import (
    BackendError,
    BackendLostError,
    BillingError,
    CredentialsError,
    DivergedError,
    RunError,
)
from tinker_atropos.trainer.backend.open_training import Opened, TrainingOpener
from tinker_atropos.trainer.current_weights import CurrentWeights
from tinker_atropos.trainer.inference.generation import Generator
from tinker_atropos.trainer.loop import train
from tinker_atropos.trainer.step_surroundings import StepSurroundings
from tinker_atropos.trainer.stop_request import StopRequest, cancelled, unless_stopped
from tinker_atropos.trainer.trainer_state import TrainerState

logger = logging.getLogger(__name__)

STEP_GRACE_SECONDS = 10.0
"""How long a step in progress may continue after a stop from outside; attempt_end.py describes what follows."""


@dataclass(frozen=True)
class RestartedLoop:
    state: TrainerState
    config: RunConfig
    stop: StopRequest
    surroundings: StepSurroundings
    weights: CurrentWeights
    generator: Generator

    async def train(self, opening: TrainingOpener) -> str | None:
        """Train until done or asked to stop. Returns why the weights cannot be saved, None if they can."""
        while True:
            try:
                return await self._train()
            except BackendLostError as error:
                if self.stop.asked:
                    return f"the backend was lost: {error}"
                if not await self.open_again(opening, error):
                    return f"the backend was lost and not yet open again: {error}"

    async def open_again(self, opening: TrainingOpener, error: BackendLostError) -> bool:
        """Continue from the newest checkpoint, in this process: later batches are requested again and replayed.

        False if the run is asked to stop first.
        """
        state = self.state
        state.progress.lost(error)
        logger.warning("the backend was lost after step %d and is opened again: %s", state.progress.weights, error)
        state.not_ready = "the trainer opens its backend again"
        await state.session.backend.close("errored")
        opened = await unless_stopped(opening.open_again(state.recorded), self.stop)
        if opened is None:
            return False
        self.surroundings.opened(opened)
        self.weights.write_opened()
        state.not_ready = None
        logger.info("continuing after step %d in training run %s", opened.step, opened.training.run_id)
        return True

    def seconds_unanswered(self) -> float:
        """For how long nothing that the backend was asked has been answered. While it is opened again, that says so."""
        if self.state.not_ready:
            return 0.0
        now, call = time.monotonic(), self.state.session.training.call
        return max(now - call[1] if call else 0.0, self.generator.seconds_unanswered(now))

    async def _train(self) -> str | None:
        training = asyncio.ensure_future(self._train_and_save(self.state.session))
        stopping = asyncio.ensure_future(self.stop.wait())
        ends: tuple[asyncio.Future[Any], ...] = (training, stopping, self.state.weights_lost)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self.stop.asked:
                self.generator.closed_because = "the trainer is stopping"
                if not await self.stop.ends(training, STEP_GRACE_SECONDS):
                    return "the step in progress did not end in time"
            elif not training.done():
                self.state.weights_lost.result()
            training.result()
        except (BackendError, BillingError, CredentialsError, DivergedError):
            raise
        except RunError as error:  # from the api or the environment: the weights are good, and worth saving
            self.stop.ask(error)
        finally:
            await cancelled(stopping, training)
        return None

    async def _train_and_save(self, opened: Opened) -> None:
        steps = range(opened.step, self.state.progress.total)
        await train(
            self.surroundings, training=opened.training, policy=self.state.policy, config=self.config, steps=steps
        )
        await self.surroundings.end()
