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
from tinker_atropos.trainer.rollouts.rollout_lines import TrainedStep
from tinker_atropos.trainer.rollouts.rollout_writer import RolloutWriter
from tinker_atropos.trainer.stop_request import StopRequest, unless_stopped
from tinker_atropos.trainer.trainer_state import TrainerState
from tinker_atropos.trainer.trajectories.batch_collector import Collected, Collector
from tinker_atropos.trainer.update.ess_steering import AllowedStaleness, ess_losses

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StepSurroundings:
    """Implements `loop.LoopSurroundings`."""

    state: TrainerState
    config: RunConfig
    collector: Collector
    accounting: Accounting
    stop: StopRequest
    early_stop: EarlyStop
    generator: Generator
    allowed: AllowedStaleness
    keeper: RolloutWriter
    tracker: Tracker
    tokenizer: Tokenizer
    reports: ApiReports
    weights: CurrentWeights

    async def next_batch(self, step: int) -> Collected | None:
        """None if the run is asked to stop, or its budget is spent."""
        if (reached := self.accounting.spending.reached(step)) is not None:
            self.stop.ask(reached)
            return None
        with self.accounting.waiting_for_batch():
            async with self.reports.trained():
                collecting = unless_stopped(self.collector.next_batch(step), self.stop)
                if self.early_stop.at_boundary:
                    collecting = unless_stopped(collecting, self.early_stop.request)
                collected = await collecting
        if collected is not None:
            self.generator.batch_taken()
        return collected

    def opened(self, opened: Opened) -> None:
        """Train what the backend has opened, and sample from it."""
        self.weights.continue_with(opened)
        self.accounting.opened(opened.step)
        self.generator.context_length = opened.context_length

    def enter(self, phase: Phase) -> None:
        self.state.status.phase = phase

    def warn(self, topic: str, sentence: str | None) -> None:
        self.state.status.warn(topic, sentence)

    async def step_trained(self, step: int, seconds: float, metrics: Mapping[str, float], trained: TrainedStep) -> None:
        """Show it in the status, the tracker, the rollout files and the log."""
        if not self.state.progress.trained(step):  # a replayed step was already counted, logged and kept
            return
        status, interval = self.state.status, self.config.tinker.wandb_samples_interval
        self.accounting.trained(step, trained.batch, seconds)
        metrics = {**metrics, "time/paused": status.standstill.lap()}
        counts = self.generator.metrics() | self.accounting.metrics() | self.state.progress.metrics()
        self.allowed.trained(ess_losses(trained.batch, trained.logprobs, step - 1, trained.first_datums))
        status.warn("ess", self.allowed.sentence)
        metrics = {**metrics, **counts, **status.group_mix, "staleness/allowed": float(self.allowed.steps)}
        self.keeper.step_trained(step, trained, metrics | status.rewarded)
        status.warn("rollouts", self.keeper.warning)
        status.step_trained(step, seconds, metrics)
        sampled = interval and step % interval == 0
        self.tracker.log_step(step, metrics, sample_rows(step, trained.batch, self.tokenizer.decode) if sampled else [])
        line = console_line(step, status.total_steps, metrics | status.metrics, status.warnings)
        logger.info("%s", line, extra={"figures": {"step": step, **metrics}})

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
        progress = self.state.progress
        if not self.stop.asked and self.early_stop.end_here():
            await self.save(progress.total)
        if progress.saved == progress.total:
            await self.weights.save_for_inference()
