"""A run in the trainer's process: its parts, built around one state, and what is shown of them."""

import asyncio
import logging
import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.errors import RunError
from tinker_atropos.result import ResultFile
from tinker_atropos.running_time import PROCESS
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.api_reports import ApiReports
from tinker_atropos.trainer.attempt import AttemptEnd, TrainerAttempt
from tinker_atropos.trainer.backend.answers import HEARD
from tinker_atropos.trainer.backend.checkpoints import CheckpointKeeper
from tinker_atropos.trainer.backend.policy import CurrentPolicy
from tinker_atropos.trainer.backend.token_use import TokenUse
from tinker_atropos.trainer.best_weights import BestWeights
from tinker_atropos.trainer.current_weights import CurrentWeights
from tinker_atropos.trainer.data.step_counts import StepCounts
from tinker_atropos.trainer.early_stop import EarlyStop
from tinker_atropos.trainer.inference.generation import Generator
from tinker_atropos.trainer.inference.ledger import Ledger
from tinker_atropos.trainer.reporting.accounting import Accounting
from tinker_atropos.trainer.reporting.prometheus import TrainerCollector
from tinker_atropos.trainer.reporting.relay import Relay
from tinker_atropos.trainer.reporting.spending import Spending
from tinker_atropos.trainer.reporting.step_metrics import tempered_warning
from tinker_atropos.trainer.reporting.time_left import Schedule
from tinker_atropos.trainer.reporting.trackers.tracker import Tracker
from tinker_atropos.trainer.reporting.trainer_status import LiveStatus
from tinker_atropos.trainer.rollouts.rollout_writer import rollout_writer
from tinker_atropos.trainer.step_surroundings import StepSurroundings
from tinker_atropos.trainer.stop_request import StopRequest
from tinker_atropos.trainer.stop_schedule import KEEP_SECONDS, StopSchedule
from tinker_atropos.trainer.trainer_state import TrainerState
from tinker_atropos.trainer.trajectories.admission import Admission
from tinker_atropos.trainer.trajectories.api_client import ApiClient, MetricsRecord
from tinker_atropos.trainer.trajectories.batch_collector import Collector
from tinker_atropos.trainer.trajectories.lease import TrainerLease
from tinker_atropos.trainer.update.ess_steering import AllowedStaleness

logger = logging.getLogger(__name__)

TOLD_SECONDS = 600.0
"""How long a freeze is among the warnings."""


class Run:
    """`attempt` is its life; the rest is what its ports show, and what is closed after it."""

    def __init__(
        self,
        settings: Settings,
        config: RunConfig,
        results: ResultFile,
        tracker: Tracker,
        stop: StopRequest,
        *,
        tokenizer: Tokenizer,
        ledger_folder: Path,
    ) -> None:
        tinker, steps = config.tinker, config.env.total_steps
        status = LiveStatus(steps, settings.run_uid, settings.attempt, schedule=Schedule.of(config))
        self.state = state = TrainerState(
            StepCounts(steps), status, results, policy=CurrentPolicy(config.env.evaluates_at)
        )
        HEARD.standstill = status.standstill
        status.warn("sampling", tempered_warning(tinker.sampling))
        self._tracker = tracker
        self.spending = Spending(TokenUse(), settings.prices, settings.spent, settings.budget)
        results.cost = self.spending.cost_at_end
        results.evaluation = lambda: status.evaluated
        results.items = lambda: status.items
        self._api = api = ApiClient(settings.api_url, standstill=status.standstill)
        lease = TrainerLease(api, status.heard_of, self._why_paused)
        self._ledger = Ledger(ledger_folder)
        self.generator = Generator(
            state.policy, self._ledger, on_failure=self._sampling_failed,
            max_context_overflows=tinker.max_context_overflows, sampling=tinker.sampling,
        )  # fmt: skip
        self._accounting = accounting = Accounting(api, lease, status, self.generator, config.env, self.spending)
        checkpoints = CheckpointKeeper(settings, tinker)
        self._best = BestWeights(state, checkpoints, settings.best)
        weights = CurrentWeights(state, checkpoints, self._best, api)
        self.keeper = rollout_writer(settings, config, tokenizer, ledger_folder)
        self._early_stop = EarlyStop(state, config)
        relay = Relay(api, status, tracker, self._evaluated_at)
        allowed = AllowedStaleness(tinker.max_staleness, tinker.min_ess)
        reports = ApiReports(api, state, accounting, allowed)
        collector = Collector(api, Admission(self._ledger, state.policy, tinker), status.warn)
        surroundings = StepSurroundings(
            state, config, collector, accounting, stop, self._early_stop, self.generator, allowed, self.keeper,
            tracker, tokenizer, reports, weights,
        )  # fmt: skip
        schedule = StopSchedule(settings.grace_seconds, settings.wandb_close_seconds)
        self.attempt = TrainerAttempt(
            state,
            config,
            tokenizer.vocabulary,
            stop,
            surroundings,
            self.generator,
            AttemptEnd(state, weights, reports, lease, relay, stop, schedule, tinker.eval_deadline_seconds),
            companions=(lease.keep, relay.keep, accounting.keep),
        )

    def watch_for_freezes(self) -> None:
        """Tell in the status that this process did not run for a while."""
        loop = asyncio.get_running_loop()
        PROCESS.listeners.append(lambda seconds: loop.call_soon_threadsafe(self._froze, seconds))

    def _froze(self, seconds: float) -> None:
        sentence = f"the trainer did not run for {seconds:.0f} s: short of CPU, or frozen?"
        logger.warning("%s", sentence)
        self.state.status.standstill.froze(seconds)
        self.state.status.warn("froze", sentence)
        asyncio.get_running_loop().call_later(TOLD_SECONDS, self.state.status.warn, "froze", None)

    def _evaluated_at(self, step: int, record: MetricsRecord) -> None:
        if (figure := record.held_out) is not None:
            self._early_stop.evaluated(step, figure)  # it compares with the best before this one
            self._best.evaluated(step, figure)
        self.keeper.evaluated(step, record.metrics)

    def _sampling_failed(self, error: RunError) -> None:
        self.attempt.sampling_failed(error)

    def _why_paused(self) -> str | None:
        HEARD.look()
        pause = self.state.status.standstill.pause
        return pause.sentence if pause else None

    def unready(self) -> str | None:
        """Why the trainer is not ready, or None."""
        return self.state.silent or self.state.not_ready

    def backend_is_silent(self, why: str | None) -> None:
        """Say so wherever the trainer is asked; None: it is not, or no longer."""
        self.state.silent = why

    def to_wire(self) -> dict[str, object]:
        """`/status`."""
        opened = self.state.opened
        call = opened.training.call if opened else None
        waiting = (
            self._why_paused()
            or self.unready()
            or self.state.unanswered
            or self._accounting.waiting(call, time.monotonic())
        )
        status, silent = self.state.status, self.state.silent is not None
        message = status.message(self._tracker.to_wire(), waiting, self.spending.cost(), silent=silent)
        queue = {"groups": status.queued_groups, "oldestStep": status.oldest_queued_step}
        return message.to_wire() | {"queue": queue, "books": self._accounting.books()}

    def registry(self) -> CollectorRegistry:
        """What Prometheus scrapes."""
        state, own = self.state, CollectorRegistry()
        books = self._accounting.books
        own.register(TrainerCollector(state.status, self.generator.totals, state.progress, books, self.spending))
        return own

    async def close(self) -> None:
        await asyncio.to_thread(self.keeper.close, KEEP_SECONDS)
        await self._api.close()
        self._ledger.close()
