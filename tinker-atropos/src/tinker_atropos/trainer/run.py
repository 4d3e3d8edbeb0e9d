"""One attempt at a run, from the first look at the backend to the last word at the trajectory API."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Never

from tinker_atropos.config import RunConfig
from tinker_atropos.errors import (
    BackendError,
    BackendLostError,
    BillingError,
    CredentialsError,
    EnvironmentLostError,
    RunError,
)
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.attempt_end import AttemptEnd
from tinker_atropos.trainer.backend.checkpoint_keeper import CheckpointKeeper
from tinker_atropos.trainer.backend.open_training import Opened, TrainingOpener
from tinker_atropos.trainer.backend.policy import CurrentPolicy
from tinker_atropos.trainer.data.datums import TrainingBatch
from tinker_atropos.trainer.data.progress import Progress
from tinker_atropos.trainer.inference.generation import Generator
from tinker_atropos.trainer.inference.ledger import Ledger
from tinker_atropos.trainer.inference.tokenizer import Tokenizer
from tinker_atropos.trainer.loop import train
from tinker_atropos.trainer.reporting.accounting import Accounting
from tinker_atropos.trainer.reporting.prometheus import Figures
from tinker_atropos.trainer.reporting.relay import Relay
from tinker_atropos.trainer.reporting.samples import Row, sample_rows
from tinker_atropos.trainer.reporting.trainer_status import Phase, RunStatus, console_line
from tinker_atropos.trainer.reporting.wandb_sink import WandbSink
from tinker_atropos.trainer.stop_request import StopRequest, beside, cancelled, forever, unless_stopped
from tinker_atropos.trainer.trajectories.admission import Admission
from tinker_atropos.trainer.trajectories.api_client import ApiClient, RunRegistration
from tinker_atropos.trainer.trajectories.batch_collector import Collected, Collector
from tinker_atropos.trainer.trajectories.lease import TrainerLease
from tinker_atropos.trainer.weights import ResultFile, Weights, no_failure

logger = logging.getLogger(__name__)

STEP_GRACE_SECONDS = 10.0
"""How long after a stop from outside a step in progress may take to end; see attempt_end.py for what comes after it."""


class Run:
    """Everything one attempt shares. The loop sees it through `loop.Surroundings`."""

    def __init__(
        self,
        settings: Settings,
        config: RunConfig,
        results: ResultFile,
        sink: WandbSink,
        stop: StopRequest,
        *,
        tokenizer: Tokenizer,
        ledger_folder: Path,
    ) -> None:
        self._config = config
        self._sink = sink
        self._stop = stop
        self._tokenizer = tokenizer
        self._progress = Progress(config.env.total_steps)
        self._policy = CurrentPolicy()
        self._not_ready: str | None = "the trainer waits for its backend"
        self._failure = no_failure()
        self._ledger = Ledger(ledger_folder)
        self.api = ApiClient(settings.api_url)
        self.lease = TrainerLease(self.api)
        self.status = RunStatus(config.env.total_steps, settings.run_uid, settings.attempt)
        self._weights = Weights(
            CheckpointKeeper(settings, config.tinker), self._policy, self._progress, self.status, results
        )
        self.generator = Generator(
            self._policy, self._ledger, on_failure=self._sampling_failed,
            max_context_overflows=config.tinker.max_context_overflows,
        )  # fmt: skip
        self._collector = Collector(self.api, Admission(self._ledger, self._policy, config.tinker), self.warn)
        self._bookkeeping = Accounting(self.api, self.lease, self.status, self.generator, config.env)
        self._relay = Relay(self.api, self.status, sink)
        self.ending = AttemptEnd(self.api, self.lease, self._relay, stop, self._weights)

    def unready(self) -> str | None:
        """Why the trainer is not ready, or None."""
        return self._not_ready

    async def close(self) -> None:
        await self.api.close()
        self._ledger.close()

    def to_wire(self) -> dict[str, Any]:
        """`/status`."""
        opened = self._weights.opened
        call = opened.training.call if opened else None
        waiting = self._not_ready or self._bookkeeping.waiting(call, time.monotonic())
        return self.status.to_wire(self._sink.to_wire(), waiting, self._bookkeeping.books())

    def figures(self) -> Figures:
        """What Prometheus scrapes."""
        return Figures(self.status, self.generator.totals, self._progress, self._bookkeeping.books())

    async def attempt(self, opening: TrainingOpener) -> None:
        """Train to the end, or until asked to stop. Raises the RunError that ended it otherwise.

        A lost environment or api ends the loop at a step boundary; a sample that the backend does not answer ends
        everything at once.
        """
        watched = (self.lease.keep(), self._relay.keep(), self._bookkeeping.keep(), self._environment_lost())
        work = self._attempt(opening)
        await beside(work, self._failed(), *(self._stop_when_it_fails(companion) for companion in watched))

    async def _attempt(self, opening: TrainingOpener) -> None:
        opened = await unless_stopped(opening.open(), self._stop)
        if opened is not None:
            await self._begin(opened)
            trouble = await self._train_on(opening)
            if self._weights.complete:
                await self._conclude(opening)
                return
            await self.ending.save_what_was_trained(trouble)
        await self.ending.over()

    @property
    def _session(self) -> Opened:
        assert self._weights.opened is not None, "only asked for once the backend has answered"
        return self._weights.opened

    async def _begin(self, opened: Opened) -> None:
        """The first sample came back: serve inference, register, and say so."""
        self._go_on_with(opened)
        self._not_ready = "the trainer waits for the trajectory API"
        await unless_stopped(self._register(opened.step), self._stop)
        self._not_ready = None
        self.lease.state = "working"
        self._weights.write_opened()
        logger.info("ready: training run %s, step %d", opened.training.run_id, opened.step)

    def _go_on_with(self, opened: Opened) -> None:
        self._weights.go_on_with(opened)
        self._bookkeeping.opened(opened.step)
        self.generator.context_length = opened.context_length

    async def _register(self, step: int) -> None:
        await self.api.register(RunRegistration.of_run(self._config, step, self._tokenizer.vocabulary))

    # The loop, as often as the backend is lost.

    async def _train_on(self, opening: TrainingOpener) -> str | None:
        """Train until all is done or a stop comes. Returns why the weights cannot be saved, None when they can."""
        while True:
            try:
                return await self._train()
            except BackendLostError as error:
                if self._stop.asked:
                    return f"the backend was lost: {error}"
                if not await self._open_again(opening, error):
                    return f"the backend was lost and not yet open again: {error}"

    async def _open_again(self, opening: TrainingOpener, error: BackendLostError) -> bool:
        """Go on from the newest checkpoint, in this process: batches since then are asked for again and replayed."""
        self._progress.lost(error)
        logger.warning("the backend was lost after step %d and is opened again: %s", self._progress.weights, error)
        self._not_ready = "the trainer opens its backend again"
        await self._session.backend.close("errored")
        saved = self._progress.saved
        opened = await unless_stopped(opening.open_again(), self._stop)
        if opened is None:
            return False
        if self._weights.complete and opened.step < saved:
            raise BackendError(f"the backend does not have the state after step {saved} any more")
        if opened.step < saved:  # that checkpoint is gone: the api has to go back behind it, too
            await unless_stopped(self._register(opened.step), self._stop)
        self._go_on_with(opened)
        self._weights.write_opened()
        self._not_ready = None
        logger.info("going on after step %d in training run %s", opened.step, opened.training.run_id)
        return True

    async def _conclude(self, opening: TrainingOpener) -> None:
        """Let the final weights be evaluated, as far as that is possible. Nothing of it can fail the run any more."""
        try:
            while not await self._evaluated(opening):
                pass
        except RunError as error:
            logger.warning("the final evaluation is lost: %s", error)
        await self.ending.succeeded()

    async def _evaluated(self, opening: TrainingOpener) -> bool:
        """False when the backend was lost meanwhile, and the final weights are there again."""
        evaluating = asyncio.ensure_future(self.ending.final_evaluation(self._bookkeeping.totals))
        ends: tuple[asyncio.Future[Any], ...] = (evaluating, self._weights.lost)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if evaluating.done():
                evaluating.result()
            else:
                self._weights.lost.result()
        except BackendLostError as error:
            return not await self._open_again(opening, error)
        finally:
            await cancelled(evaluating)
        return True

    async def _train(self) -> str | None:
        training = asyncio.ensure_future(self._train_and_save(self._session))
        stopping = asyncio.ensure_future(self._stop.wait())
        ends: tuple[asyncio.Future[Any], ...] = (training, stopping, self._weights.lost)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.asked:
                self.generator.closed_because = "the trainer is stopping"
                if not await self._stop.ends(training, STEP_GRACE_SECONDS):
                    return "the step in progress did not end in time"
            elif not training.done():
                self._weights.lost.result()
            training.result()
        except (BackendError, BillingError, CredentialsError):
            raise
        except RunError as error:  # the api's or the environment's: the weights are good, and worth saving
            self._stop.ask(error)
        finally:
            await cancelled(stopping, training)
        return None

    async def _train_and_save(self, opened: Opened) -> None:
        steps = range(opened.step, self._progress.total)
        await train(self, training=opened.training, policy=self._policy, config=self._config.tinker, steps=steps)
        if self._progress.saved == self._progress.total:
            await self._weights.save_for_inference()

    # What the loop asks of its surroundings.

    async def next_batch(self, step: int) -> Collected | None:
        with self._bookkeeping.waiting_for_batch():
            collected = await unless_stopped(self._collector.next_batch(step), self._stop)
        if collected is not None:
            self.generator.batch_taken()
        return collected

    def enter(self, phase: Phase) -> None:
        self.status.phase = phase

    def warn(self, topic: str, sentence: str | None) -> None:
        self.status.warn(topic, sentence)

    async def step_trained(self, step: int, seconds: float, metrics: Mapping[str, float], batch: TrainingBatch) -> None:
        if self._progress.trained(step):  # a replayed step was counted and logged the first time
            self._log_step(step, seconds, metrics, batch)
        await self.api.report_progress(step, done=False, totals=self._bookkeeping.totals())

    def _log_step(self, step: int, seconds: float, metrics: Mapping[str, float], batch: TrainingBatch) -> None:
        self._bookkeeping.trained(step, batch)
        counts = self.generator.metrics() | self._bookkeeping.metrics() | self._progress.metrics()
        metrics = {**metrics, **counts}
        self.status.step_trained(step, seconds, metrics)
        self._sink.log_step(step, metrics, self._sample_rows(step, batch))
        line = console_line(step, self.status.total_steps, metrics, self.status.warnings)
        logger.info("%s", line, extra={"figures": {"step": step, **metrics}})

    def _sample_rows(self, step: int, batch: TrainingBatch) -> list[Row]:
        interval = self._config.tinker.wandb_samples_interval
        return sample_rows(step, batch, self._tokenizer.decode) if interval and step % interval == 0 else []

    async def save(self, step: int) -> None:
        """Save a state checkpoint, let the api forget what it covers, and delete what it replaces."""
        await self._weights.save(for_ever=step == self._progress.total)
        totals = self._bookkeeping.totals()
        await self.api.report_progress(step, done=False, checkpoint_step=step, totals=totals)
        await self._weights.keeper.tidy(self._session.backend.stored)

    # How it fails.

    async def fail(self, error: RunError) -> None:
        """Tell the environment why the run is over."""
        await self.ending.say("failed", str(error))

    def _sampling_failed(self, error: RunError) -> None:
        """Inference met an error. After a lost backend the loop begins again; only a complete run survives others."""
        if isinstance(error, BackendLostError):
            self._weights.sampling_lost(error)
        elif self._weights.complete or isinstance(error, EnvironmentLostError):
            self._stop.ask(error)
        elif not self._failure.done():
            self._failure.set_exception(error)

    async def _environment_lost(self) -> Never:
        """One that ends after the training has evaluated the final weights: `ending` waits for that."""
        try:
            await self.lease.environment_lost()
        except EnvironmentLostError:
            if not self._weights.complete:
                raise
        await forever()

    async def _failed(self) -> Never:
        await asyncio.shield(self._failure)

    async def _stop_when_it_fails(self, companion: Coroutine[Any, Any, Never]) -> Never:
        try:
            await companion
        except RunError as error:
            self._stop.ask(error)
        await forever()
