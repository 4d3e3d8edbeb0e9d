"""A run in the trainer's process: its parts, built around one state, what is shown of them, and the life of its
attempt, from the first request to the backend to the final report to the trajectory API. The loop begins again each
time the backend is lost, and continues from a checkpoint.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

from prometheus_client import CollectorRegistry

from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.errors import (
    BackendError,
    BackendLostError,
    BillingError,
    CredentialsError,
    DivergedError,
    EnvironmentLostError,
    RunError,
)
from tinker_atropos.result import ResultFile
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.api_reports import ApiReports
from tinker_atropos.trainer.attempt_end import KEEP_SECONDS, AttemptEnd
from tinker_atropos.trainer.backend.checkpoints import CheckpointKeeper
from tinker_atropos.trainer.backend.open_training import Opened, TrainingOpener
from tinker_atropos.trainer.backend.policy import CurrentPolicy
from tinker_atropos.trainer.backend.reachability import explained
from tinker_atropos.trainer.backend.token_use import TokenUse
from tinker_atropos.trainer.best_weights import BestWeights
from tinker_atropos.trainer.current_weights import CurrentWeights
from tinker_atropos.trainer.data.divergence import diverged
from tinker_atropos.trainer.data.step_counts import StepCounts
from tinker_atropos.trainer.early_stop import EarlyStop
from tinker_atropos.trainer.inference.generation import Generator
from tinker_atropos.trainer.inference.ledger import Ledger
from tinker_atropos.trainer.loop import train
from tinker_atropos.trainer.reporting.accounting import Accounting
from tinker_atropos.trainer.reporting.prometheus import registry
from tinker_atropos.trainer.reporting.relay import Relay
from tinker_atropos.trainer.reporting.spending import Spending
from tinker_atropos.trainer.reporting.time_left import Schedule
from tinker_atropos.trainer.reporting.trackers.tracker import Tracker
from tinker_atropos.trainer.reporting.trainer_status import LiveStatus
from tinker_atropos.trainer.rollouts.rollout_writer import rollout_writer
from tinker_atropos.trainer.step_surroundings import StepSurroundings
from tinker_atropos.trainer.stop_request import StopRequest, beside, cancelled, forever, unless_stopped
from tinker_atropos.trainer.trainer_state import TrainerState
from tinker_atropos.trainer.trajectories.admission import Admission
from tinker_atropos.trainer.trajectories.api_client import ApiClient, MetricsRecord
from tinker_atropos.trainer.trajectories.batch_collector import Collector
from tinker_atropos.trainer.trajectories.lease import TrainerLease
from tinker_atropos.trainer.update.ess_steering import AllowedStaleness

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
        await unless_stopped(weights.best.check(), self.stop)
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

    async def _stop_when_it_fails(self, companion: Coroutine[object, object, Never]) -> Never:
        try:
            await companion
        except DivergedError:
            raise
        except RunError as error:
            self.stop.ask(error)
        await forever()


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
        self._tracker = tracker
        self.spending = Spending(TokenUse(), settings.prices, settings.spent, settings.budget)
        results.cost = self.spending.cost_at_end
        results.evaluation = lambda: status.evaluated
        self._api = api = ApiClient(settings.api_url)
        lease = TrainerLease(api, status.heard_of)
        self._ledger = Ledger(ledger_folder)
        self.generator = Generator(
            state.policy, self._ledger, on_failure=self._sampling_failed,
            max_context_overflows=tinker.max_context_overflows,
        )  # fmt: skip
        self._accounting = accounting = Accounting(api, lease, status, self.generator, config.env, self.spending)
        checkpoints = CheckpointKeeper(settings, tinker)
        self._best = BestWeights(state, checkpoints, settings.best)
        weights = CurrentWeights(state, checkpoints, self._best)
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
        self.attempt = TrainerAttempt(
            state,
            config,
            tokenizer.vocabulary,
            stop,
            RestartedLoop(state, config, stop, surroundings, weights, self.generator),
            AttemptEnd(state, weights, reports, lease, relay, stop, tinker.eval_deadline_seconds),
            companions=(lease.keep, relay.keep, accounting.keep),
        )

    def _evaluated_at(self, step: int, record: MetricsRecord) -> None:
        if (figure := record.held_out) is not None:
            self._early_stop.evaluated(step, figure)  # it compares with the best before this one
            self._best.evaluated(step, figure)
        self.keeper.evaluated(step, record.metrics)

    def _sampling_failed(self, error: RunError) -> None:
        self.attempt.sampling_failed(error)

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
        waiting = self.unready() or self.state.unanswered or self._accounting.waiting(call, time.monotonic())
        status, silent = self.state.status, self.state.silent is not None
        message = status.message(self._tracker.to_wire(), waiting, self.spending.cost(), silent=silent)
        queue = {"groups": status.queued_groups, "oldestStep": status.oldest_queued_step}
        return message.to_wire() | {"queue": queue, "books": self._accounting.books()}

    def registry(self) -> CollectorRegistry:
        """What Prometheus scrapes."""
        return registry(
            self.state.status, self.generator.totals, self.state.progress, self._accounting.books, self.spending
        )

    async def close(self) -> None:
        await asyncio.to_thread(self.keeper.close, KEEP_SECONDS)
        await self._api.close()
        self._ledger.close()
