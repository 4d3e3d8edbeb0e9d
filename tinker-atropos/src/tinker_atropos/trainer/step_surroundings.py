"""What happens around the steps of a run: batches are fetched, steps are reported, and checkpoints are saved."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from rl_contract.trainer_messages import Phase
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.trainer.api_reports import ApiReports
from tinker_atropos.trainer.backend.open_training import Opened
from tinker_atropos.trainer.current_weights import CurrentWeights
from tinker_atropos.trainer.early_stop import EarlyStop
from tinker_atropos.trainer.inference.generation import Generator
from tinker_atropos.trainer.reporting.accounting import Accounting
from tinker_atropos.trainer.reporting.trackers.tracker import Tracker, sample_rows
from tinker_atropos.trainer.reporting.trainer_status import console_line
from tinker_atropos.trainer.rollouts.group_records import TrainedStep
from tinker_atropos.trainer.rollouts.rollout_writer import RolloutWriter
from tinker_atropos.trainer.stop_request import StopRequest, unless_stopped
from tinker_atropos.trainer.trainer_state import TrainerState
from tinker_atropos.trainer.trajectories.batch_collector import Collected, Collector
from tinker_atropos.trainer.update.ess_steering import AllowedStaleness, stale_tokens

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchWait:
    """Waits for the batch of a step, unless the run ends first."""

    collector: Collector
    accounting: Accounting
    stop: StopRequest
    early_stop: EarlyStop

    async def batch(self, step: int, reports: ApiReports) -> Collected | None:
        """None if the run is asked to stop, or its budget is spent."""
        if (reached := self.accounting.spending.reached(step)) is not None:
            self.stop.ask(reached)
            return None
        with self.accounting.waiting_for_batch():
            async with reports.trained():
                collecting = unless_stopped(self.collector.next_batch(step), self.stop)
                if self.early_stop.at_boundary:
                    collecting = unless_stopped(collecting, self.early_stop.request)
                return await collecting


@dataclass(frozen=True)
class StepLog:
    """Where a trained step is shown: the status, the tracker, the rollout files and the log."""

    state: TrainerState
    accounting: Accounting
    generator: Generator
    allowed: AllowedStaleness
    keeper: RolloutWriter
    tracker: Tracker
    tokenizer: Tokenizer
    samples_interval: int

    def trained(self, step: int, seconds: float, metrics: Mapping[str, float], trained: TrainedStep) -> None:
        status = self.state.status
        self.accounting.trained(step, trained.batch, seconds)
        counts = self.generator.metrics() | self.accounting.metrics() | self.state.progress.metrics()
        counts |= status.group_mix
        self.allowed.trained(stale_tokens(trained.batch.datums, trained.logprobs, step - 1))
        status.warn("ess", self.allowed.sentence)
        metrics = {**metrics, **counts, "staleness/allowed": float(self.allowed.steps)}
        self.keeper.step_trained(step, trained, metrics)
        status.warn("rollouts", self.keeper.warning)
        status.step_trained(step, seconds, metrics)
        sampled = self.samples_interval and step % self.samples_interval == 0
        self.tracker.log_step(step, metrics, sample_rows(step, trained.batch, self.tokenizer.decode) if sampled else [])
        line = console_line(step, status.total_steps, metrics | status.metrics, status.warnings)
        logger.info("%s", line, extra={"figures": {"step": step, **metrics}})


@dataclass(frozen=True)
class StepSurroundings:
    """Implements `loop.LoopSurroundings`."""

    state: TrainerState
    config: RunConfig
    batches: BatchWait
    log: StepLog
    reports: ApiReports
    weights: CurrentWeights

    async def next_batch(self, step: int) -> Collected | None:
        collected = await self.batches.batch(step, self.reports)
        if collected is not None:
            self.log.generator.batch_taken()
        return collected

    def opened(self, opened: Opened) -> None:
        """Train what the backend has opened, and sample from it."""
        self.weights.continue_with(opened)
        self.log.accounting.opened(opened.step)
        self.log.generator.context_length = opened.context_length

    def enter(self, phase: Phase) -> None:
        self.state.status.phase = phase

    def warn(self, topic: str, sentence: str | None) -> None:
        self.state.status.warn(topic, sentence)

    async def step_trained(self, step: int, seconds: float, metrics: Mapping[str, float], trained: TrainedStep) -> None:
        if self.state.progress.trained(step):  # a replayed step was already counted, logged and kept
            self.log.trained(step, seconds, metrics, trained)

    def saves_at(self, step: int) -> bool:
        interval = self.config.tinker.save_checkpoint_interval
        return step % interval == 0 or step == self.state.progress.total or self.config.env.evaluates_at(step)

    async def save(self, step: int) -> None:
        """Save a state checkpoint, let the api discard what it covers, and delete what it replaces."""
        final = step == self.state.progress.total
        async with self.reports.trained():
            await self.weights.save(forever=final)
        await self.reports.saved(step)
        if self.config.env.evaluates_at(step) and not final:  # the final sampler weights are saved in any case
            await self.weights.save_for_evaluation(step)
        await self.weights.best.tidy()

    async def end(self) -> None:
        """The loop has ended: save the step that an early stop ends with, and the final sampler weights."""
        progress, batches = self.state.progress, self.batches
        if not batches.stop.asked and batches.early_stop.end_here():
            await self.save(progress.total)
        if progress.saved == progress.total:
            await self.weights.save_for_inference()
