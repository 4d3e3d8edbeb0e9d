"""What happens around the steps of a run: batches are fetched, steps are reported, and checkpoints are saved."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.trainer.data.datums import TrainingBatch
from tinker_atropos.trainer.early_stop import EarlyStop
from tinker_atropos.trainer.inference.generation import Generator
from tinker_atropos.trainer.reporting.accounting import Accounting
from tinker_atropos.trainer.reporting.samples import Row, sample_rows
from tinker_atropos.trainer.reporting.trackers.tracker import Tracker
from tinker_atropos.trainer.reporting.trainer_status import Phase, console_line
from tinker_atropos.trainer.rollouts.rollout_keeper import RolloutKeeper
from tinker_atropos.trainer.rollouts.trained_step import TrainedStep
from tinker_atropos.trainer.stop_request import StopRequest, cancelled, unless_stopped
from tinker_atropos.trainer.trainer_state import TrainerState
from tinker_atropos.trainer.trajectories.api_client import ApiClient
from tinker_atropos.trainer.trajectories.batch_collector import Collected, Collector
from tinker_atropos.trainer.update.ess_steering import AllowedStaleness, stale_tokens
from tinker_atropos.trainer.weights import Weights

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StepSurroundings:
    """Implements `loop.Surroundings`."""

    state: TrainerState
    stop: StopRequest
    config: RunConfig
    api: ApiClient
    collector: Collector
    generator: Generator
    weights: Weights
    accounting: Accounting
    sink: Tracker
    tokenizer: Tokenizer
    keeper: RolloutKeeper
    early_stop: EarlyStop
    allowed: AllowedStaleness

    async def next_batch(self, step: int) -> Collected | None:
        if (reached := self.accounting.spending.reached(step)) is not None:
            self.stop.ask(reached)
            return None
        with self.accounting.waiting_for_batch():
            async with self._reporting():
                collecting = unless_stopped(self.collector.next_batch(step), self.stop)
                if self.early_stop.at_boundary:
                    collecting = unless_stopped(collecting, self.early_stop.request)
                collected = await collecting
        if collected is not None:
            self.generator.batch_taken()
        return collected

    def enter(self, phase: Phase) -> None:
        self.state.status.phase = phase

    def warn(self, topic: str, sentence: str | None) -> None:
        self.state.status.warn(topic, sentence)

    async def step_trained(self, step: int, seconds: float, metrics: Mapping[str, float], trained: TrainedStep) -> None:
        if self.state.progress.trained(step):  # a replayed step was already counted, logged and kept
            self._log_step(step, seconds, metrics, trained)

    @contextlib.asynccontextmanager
    async def _reporting(self) -> AsyncIterator[None]:
        """Tell the trajectory API what is trained, while the block waits for something else."""
        report = asyncio.ensure_future(self._report())
        try:
            yield
            await report
        finally:
            await cancelled(report)

    async def _report(self) -> None:
        progress = self.state.progress
        step = progress.weights
        if step != progress.reported:
            totals = self.accounting.totals()
            await self.api.report_progress(step, done=False, totals=totals, max_staleness=self.allowed.steps)
            progress.reported = step

    def _log_step(self, step: int, seconds: float, metrics: Mapping[str, float], trained: TrainedStep) -> None:
        self.accounting.trained(step, trained.batch, seconds)
        counts = self.generator.metrics() | self.accounting.metrics() | self.state.progress.metrics()
        counts |= self.state.status.group_mix
        self.allowed.trained(stale_tokens(trained.batch.datums, trained.logprobs, step - 1))
        self.warn("ess", self.allowed.sentence)
        metrics = {**metrics, **counts, "staleness/allowed": float(self.allowed.steps)}
        self.keeper.step_trained(step, trained, metrics)
        self.warn("rollouts", self.keeper.warning)
        status = self.state.status
        status.step_trained(step, seconds, metrics)
        self.sink.log_step(step, metrics, self._sample_rows(step, trained.batch))
        line = console_line(step, status.total_steps, metrics | status.metrics, status.warnings)
        logger.info("%s", line, extra={"figures": {"step": step, **metrics}})

    def _sample_rows(self, step: int, batch: TrainingBatch) -> list[Row]:
        interval = self.config.tinker.wandb_samples_interval
        return sample_rows(step, batch, self.tokenizer.decode) if interval and step % interval == 0 else []

    def saves_at(self, step: int) -> bool:
        interval = self.config.tinker.save_checkpoint_interval
        return step % interval == 0 or step == self.state.progress.total or self.config.env.evaluates_at(step)

    async def save(self, step: int) -> None:
        """Save a state checkpoint, let the api discard what it covers, and delete what it replaces."""
        final = step == self.state.progress.total
        async with self._reporting():
            await self.weights.save(forever=final)
        totals = self.accounting.totals()
        await self.api.report_progress(step, done=False, checkpoint_step=step, totals=totals)
        if self.config.env.evaluates_at(step) and not final:  # the final sampler weights are saved in any case
            await self.weights.save_for_evaluation(step)
        await self.weights.best.tidy(self.state.session.backend.stored)
