"""One attempt at a run, from the first request to the backend to the final report to the trajectory API."""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

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
from tinker_atropos.trainer.attempt_end import AttemptEnd
from tinker_atropos.trainer.backend.checkpoint_keeper import CheckpointKeeper
from tinker_atropos.trainer.backend.open_training import Opened, TrainingOpener
from tinker_atropos.trainer.backend.policy import CurrentPolicy
from tinker_atropos.trainer.backend.reachability import explained
from tinker_atropos.trainer.backend.token_use import TokenUse
from tinker_atropos.trainer.best_weights import BestWeights
from tinker_atropos.trainer.data.divergence import diverged
from tinker_atropos.trainer.data.progress import Progress
from tinker_atropos.trainer.early_stop import EarlyStop
from tinker_atropos.trainer.inference.generation import Generator
from tinker_atropos.trainer.inference.ledger import Ledger
from tinker_atropos.trainer.loop import train
from tinker_atropos.trainer.reporting.accounting import Accounting
from tinker_atropos.trainer.reporting.prometheus import Snapshot
from tinker_atropos.trainer.reporting.relay import Relay
from tinker_atropos.trainer.reporting.spending import Spending
from tinker_atropos.trainer.reporting.time_left import Schedule
from tinker_atropos.trainer.reporting.trackers.tracker import Tracker
from tinker_atropos.trainer.reporting.trainer_status import RunStatus
from tinker_atropos.trainer.rollouts.rollout_keeper import rollout_keeper
from tinker_atropos.trainer.step_surroundings import StepSurroundings
from tinker_atropos.trainer.stop_request import StopRequest, beside, cancelled, forever, unless_stopped
from tinker_atropos.trainer.trainer_state import TrainerState
from tinker_atropos.trainer.trajectories.admission import Admission
from tinker_atropos.trainer.trajectories.api_client import ApiClient, RunRegistration
from tinker_atropos.trainer.trajectories.batch_collector import Collector
from tinker_atropos.trainer.trajectories.lease import TrainerLease
from tinker_atropos.trainer.update.ess_steering import AllowedStaleness
from tinker_atropos.trainer.weights import Weights

logger = logging.getLogger(__name__)

STEP_GRACE_SECONDS = 10.0
"""How long a step in progress may continue after a stop from outside; attempt_end.py describes what follows."""


KEEP_SECONDS = 5.0
"""For the last call of a run that failed, whose result has what it needs, and for the last files of rollouts."""


class Run:
    """Builds the parts of one attempt around one `TrainerState`, and runs it from beginning to end."""

    def __init__(
        self,
        settings: Settings,
        config: RunConfig,
        results: ResultFile,
        sink: Tracker,
        stop: StopRequest,
        *,
        tokenizer: Tokenizer,
        ledger_folder: Path,
    ) -> None:
        steps = config.env.total_steps
        status = RunStatus(steps, settings.run_uid, settings.attempt, schedule=Schedule.of(config))
        self.state = state = TrainerState(
            Progress(steps), status, results, policy=CurrentPolicy(config.env.evaluates_at)
        )
        self._config = config
        self._sink = sink
        self._stop = stop
        self._vocabulary = tokenizer.vocabulary
        self._ledger = Ledger(ledger_folder)
        self.api = ApiClient(settings.api_url)
        self.spending = Spending(TokenUse(), settings.prices, settings.spent, settings.budget)
        results.cost = self.spending.at_end
        results.evaluated = lambda: status.evaluated
        self.lease = TrainerLease(self.api, state.status.heard_of)
        self.generator = Generator(
            state.policy, self._ledger, on_failure=self._sampling_failed,
            max_context_overflows=config.tinker.max_context_overflows,
        )  # fmt: skip
        keeper = CheckpointKeeper(settings, config.tinker)
        self._weights = Weights(state, keeper, BestWeights(state, keeper, settings.best))
        self._accounting = Accounting(self.api, self.lease, state.status, self.generator, config.env, self.spending)
        self.keeper = rollout_keeper(settings, config, tokenizer, ledger_folder)
        self._early_stop = EarlyStop(state, config)
        self._relay = Relay(self.api, state.status, sink, self._evaluated_at)
        self.ending = AttemptEnd(
            state, self._weights, self.api, self.lease, self._relay, stop, config.tinker.eval_deadline_seconds
        )
        admission = Admission(self._ledger, state.policy, config.tinker)
        self._allowed = AllowedStaleness(config.tinker.max_staleness, config.tinker.min_ess)
        self._surroundings = StepSurroundings(
            state, stop, config, self.api, Collector(self.api, admission, state.status.warn), self.generator,
            self._weights, self._accounting, sink, tokenizer, self.keeper, self._early_stop, self._allowed,
        )  # fmt: skip

    def _evaluated_at(self, step: int, metrics: Mapping[str, float]) -> None:
        self._early_stop.evaluated(step, metrics)  # it compares with the best before this one
        self._weights.best.evaluated(step, metrics)
        self.keeper.evaluated(step, metrics)

    def unready(self) -> str | None:
        """Why the trainer is not ready, or None."""
        return self.state.silent or self.state.not_ready

    def backend_is_silent(self, why: str | None) -> None:
        """Say so wherever the trainer is asked; None: it is not, or no longer."""
        self.state.silent = why

    def backend_owes_answers(self, why: str | None) -> None:
        """The same while it trains: the trainer stays ready."""
        self.state.unanswered = why

    def _seconds_unanswered(self) -> float:
        """For how long nothing that the backend was asked has been answered. While it is opened again, that says so."""
        if self.state.not_ready:
            return 0.0
        now, call = time.monotonic(), self.state.session.training.call
        return max(now - call[1] if call else 0.0, self.generator.seconds_unanswered(now))

    async def close(self) -> None:
        await asyncio.to_thread(self.keeper.close, KEEP_SECONDS)
        await self.api.close()
        self._ledger.close()

    def to_wire(self) -> dict[str, Any]:
        """`/status`."""
        opened = self.state.opened
        call = opened.training.call if opened else None
        waiting = self.unready() or self.state.unanswered or self._accounting.waiting(call, time.monotonic())
        wire = self.state.status.to_wire(self._sink.to_wire(), waiting, self._accounting.books())
        return {**wire, "backendSilent": self.state.silent is not None, "cost": self.spending.to_wire()}

    def snapshot(self) -> Snapshot:
        """What Prometheus scrapes."""
        totals, books = self.generator.totals, self._accounting.books()
        return Snapshot(self.state.status, totals, self.state.progress, books, self.spending)

    async def attempt(self, opening: TrainingOpener) -> None:
        """Train to the end, or until asked to stop. Otherwise raises the RunError that ended it.

        A lost environment or api ends the loop at a step boundary; a sample that the backend does not answer ends
        everything immediately. So does divergence: such weights are not saved over the last good ones.
        """
        watched = (self.lease.keep(), self._relay.keep(), self._accounting.keep(), self._environment_lost())
        work = self._attempt(opening)
        try:
            await beside(work, self._failed(), *(self._stop_when_it_fails(companion) for companion in watched))
        except DivergedError as error:
            raise diverged(error, self.state.progress.weights, self._config) from error

    async def _attempt(self, opening: TrainingOpener) -> None:
        opened = await unless_stopped(opening.open(), self._stop)
        if opened is not None:
            await self._begin(opened)
            trouble = await explained(
                self._train_on(opening),
                opening.url,
                opening.deadline,
                self.backend_owes_answers,
                self._seconds_unanswered,
            )
            if self.state.complete:
                await self._conclude(opening)
                return
            await self.ending.save_what_was_trained(trouble)
        await self.ending.over()

    async def _begin(self, opened: Opened) -> None:
        """The first sample has come back: serve inference, register, and report readiness."""
        self._continue_with(opened)
        await unless_stopped(self._weights.best.check(opened.backend.stored), self._stop)
        self.state.not_ready = "the trainer waits for the trajectory API"
        await unless_stopped(self._register(opened.step), self._stop)
        self.state.not_ready = None
        self.lease.state = "working"
        self._weights.write_opened()
        run_id, context = opened.training.run_id, opened.context_length or "an unknown number of"
        model = f"{self._config.base_model} with a context of {context} tokens"
        logger.info("ready: training run %s, step %d, %s", run_id, opened.step, model)

    def _continue_with(self, opened: Opened) -> None:
        self._weights.continue_with(opened)
        self._accounting.opened(opened.step)
        self.generator.context_length = opened.context_length

    async def _register(self, step: int) -> None:
        environment_state = self.state.status.environment_state
        registration = RunRegistration.of_run(self._config, step, self._vocabulary, environment_state)
        await self.api.register(replace(registration, max_staleness=self._allowed.steps))

    # The loop, restarted each time the backend is lost.

    async def _train_on(self, opening: TrainingOpener) -> str | None:
        """Train until done or asked to stop. Returns why the weights cannot be saved, None if they can."""
        while True:
            try:
                return await self._train()
            except BackendLostError as error:
                if self._stop.asked:
                    return f"the backend was lost: {error}"
                if not await self._open_again(opening, error):
                    return f"the backend was lost and not yet open again: {error}"

    async def _open_again(self, opening: TrainingOpener, error: BackendLostError) -> bool:
        """Continue from the newest checkpoint, in this process: later batches are requested again and replayed."""
        self.state.progress.lost(error)
        logger.warning("the backend was lost after step %d and is opened again: %s", self.state.progress.weights, error)
        self.state.not_ready = "the trainer opens its backend again"
        await self.state.session.backend.close("errored")
        opened = await unless_stopped(opening.open_again(self.state.recorded), self._stop)
        if opened is None:
            return False
        self._continue_with(opened)
        self._weights.write_opened()
        self.state.not_ready = None
        logger.info("continuing after step %d in training run %s", opened.step, opened.training.run_id)
        return True

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
        evaluating = asyncio.ensure_future(self.ending.final_evaluation(self._accounting.totals))
        ends: tuple[asyncio.Future[Any], ...] = (evaluating, self.state.weights_lost)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if evaluating.done():
                evaluating.result()
            else:
                self.state.weights_lost.result()
        except BackendLostError as error:
            return not await self._open_again(opening, error)
        finally:
            await cancelled(evaluating)
        return True

    async def _train(self) -> str | None:
        training = asyncio.ensure_future(self._train_and_save(self.state.session))
        stopping = asyncio.ensure_future(self._stop.wait())
        ends: tuple[asyncio.Future[Any], ...] = (training, stopping, self.state.weights_lost)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.asked:
                self.generator.closed_because = "the trainer is stopping"
                if not await self._stop.ends(training, STEP_GRACE_SECONDS):
                    return "the step in progress did not end in time"
            elif not training.done():
                self.state.weights_lost.result()
            training.result()
        except (BackendError, BillingError, CredentialsError, DivergedError):
            raise
        except RunError as error:  # from the api or the environment: the weights are good, and worth saving
            self._stop.ask(error)
        finally:
            await cancelled(stopping, training)
        return None

    async def _train_and_save(self, opened: Opened) -> None:
        steps = range(opened.step, self.state.progress.total)
        await train(
            self._surroundings,
            training=opened.training,
            policy=self.state.policy,
            config=self._config,
            steps=steps,
        )
        if not self._stop.asked and self._early_stop.end_here():
            await self._surroundings.save(self.state.progress.total)
        if self.state.progress.saved == self.state.progress.total:
            await self._weights.save_for_inference()

    # Failures.

    async def fail(self, error: RunError) -> None:
        """Tell the environment why the run is over, and keep its best weights."""
        await self.ending.say("failed", str(error))
        if self.state.opened is not None:
            await self._weights.best.keep(self.state.opened.backend.stored, KEEP_SECONDS)

    def _sampling_failed(self, error: RunError) -> None:
        """Inference hit an error. After a lost backend the loop restarts; only a complete run survives other errors,
        and not even that one survives weights that have diverged.
        """
        if isinstance(error, BackendLostError):
            self._weights.sampling_lost(error)
        elif not isinstance(error, DivergedError) and (self.state.complete or isinstance(error, EnvironmentLostError)):
            self._stop.ask(error)
        elif not self.state.failed.done():
            self.state.failed.set_exception(error)

    async def _environment_lost(self) -> Never:
        """An environment that ends after training has evaluated the final weights: AttemptEnd waits for it."""
        try:
            await self.lease.environment_lost()
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
            self._stop.ask(error)
        await forever()
