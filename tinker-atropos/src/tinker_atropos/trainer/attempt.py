"""The life of an attempt, from the first request to the backend to the final report to the trajectory API. The loop
begins again each time the backend is lost, and continues from a checkpoint.

A process that is stopped from outside has its grace period: each part of an attempt's end has its own deadline, counted
from that moment (`stop_schedule.py`). Without such a stop, the backend's deadline is enough.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Never

from rl_contract.trainer_messages import ResultCheckpoint
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.errors import (
    BackendError,
    BackendLostError,
    BillingError,
    CredentialsError,
    DivergedError,
    EnvironmentLostError,
    RunError,
    SilenceError,
    WithdrawnError,
)
from tinker_atropos.trainer.api_reports import ApiReports
from tinker_atropos.trainer.backend.answers import HEARD, TRAINING
from tinker_atropos.trainer.backend.open_training import Opened, TrainingOpener
from tinker_atropos.trainer.backend.reachability import explained
from tinker_atropos.trainer.current_weights import CurrentWeights
from tinker_atropos.trainer.data.divergence import diverged
from tinker_atropos.trainer.inference.generation import Generator
from tinker_atropos.trainer.loop import train
from tinker_atropos.trainer.reporting.relay import Relay
from tinker_atropos.trainer.step_surroundings import StepSurroundings
from tinker_atropos.trainer.stop_request import StopRequest, beside, cancelled, forever, unless_stopped
from tinker_atropos.trainer.stop_schedule import (
    CLOSE_SECONDS,
    COUNT_SECONDS,
    FAREWELL_SECONDS,
    KEEP_SECONDS,
    StopSchedule,
)
from tinker_atropos.trainer.trainer_state import TrainerState
from tinker_atropos.trainer.trajectories.api_client import Peer
from tinker_atropos.trainer.trajectories.lease import TrainerLease

logger = logging.getLogger(__name__)

REPLACED_SECONDS = 1200.0
"""How much longer than an evaluation's deadline the final one is waited for: a new environment may have to set up."""

ABSENT_SECONDS = 10.0
"""How long to wait at the end for an environment that never held a lease (one without our runner)."""

STOPPED_REASON = "the run was stopped on request"


@dataclass
class AttemptEnd:
    state: TrainerState
    weights: CurrentWeights
    reports: ApiReports
    lease: TrainerLease
    relay: Relay
    stop: StopRequest
    schedule: StopSchedule
    eval_deadline_seconds: float
    _lost_because: str | None = None

    async def final_evaluation(self) -> None:
        """Report that training is done, and wait for the environment to evaluate the final weights.

        The books are reported twice: they include what was in flight only after the environment has ended.
        """
        self.state.status.phase = "done"
        await unless_stopped(self.reports.done(), self.stop)
        logger.info("training is done; the environment evaluates the final weights")
        seconds = self.eval_deadline_seconds + REPLACED_SECONDS
        peer = await unless_stopped(self._environment_finished(seconds), self.stop)
        if peer is not None and peer.state in ("away", "failed", "lost"):
            why = f"the environment is {peer.state}" + (f": {peer.reason}" if peer.reason else "")
            logger.warning("the final weights may not have been evaluated: %s", why)
        await unless_stopped(self.relay.collect(), self.stop)
        await unless_stopped(self.reports.done(), self.stop)
        await unless_stopped(self.reports.accounting.read_books(), self.stop)

    async def _environment_finished(self, seconds: float) -> Peer:
        """Within `seconds`, in which pauses of the backend do not count."""
        still = self.state.status.standstill
        while True:
            paused = still.seconds
            peer = await self.lease.environment_finished(seconds, ABSENT_SECONDS)
            seconds = still.seconds - paused
            if peer.state not in ("starting", "working") or not seconds:
                return peer

    async def succeeded(self) -> None:
        """Rollouts that wait are those that an early stop has no use for; after the last step there are none."""
        dropped = await self._dropped() if self.state.status.stopped_early else {}
        self.state.results.write(outcome="succeeded", metrics=self.state.metrics, **dropped)
        await self._tidy()
        await self.say("done", None)

    async def save_what_was_trained(self, trouble: str | None) -> None:
        """Save the weights, to be kept until the run continues. `trouble`: why that is no longer possible."""
        self.state.status.phase = "saving"
        if trouble is None and self.state.progress.weights > self.state.progress.saved:
            trouble = await self._in_time(self.weights.save(forever=True), self.schedule.saved_by)
        if self.state.status.checkpoint and self.state.status.checkpoint.expires_at:
            await self._keep_last_checkpoint()
        if trouble is not None and self.state.progress.counted > self.state.progress.saved:
            self._lost_because = trouble
        await self._tidy()

    async def _tidy(self) -> None:
        """Let the best weights never expire; everything that matters more is saved by now."""
        if self.state.opened is not None:
            trouble = await self._in_time(self.weights.best.tidy(), self.schedule.kept_by)
            if trouble is not None:
                logger.warning("the checkpoints of evaluations are as they were: %s", trouble)

    async def _keep_last_checkpoint(self) -> None:
        """A stopped run may be resumed at any time: its last state must not expire until then."""
        path = self.state.results.result.state_path
        assert path is not None
        trouble = await self._in_time(self.weights.keeper.stored.keep_forever(path), self.schedule.kept_by)
        if trouble is not None:
            logger.warning("%s still expires at %s: %s", path, self.state.results.result.checkpoint.expires_at, trouble)
            return
        if self.state.status.checkpoint is not None:
            self.state.status.checkpoint = self.state.status.checkpoint.with_changes(expires_at=None)
        self.state.results.write(checkpoint=ResultCheckpoint())

    async def _in_time(self, work: Coroutine[object, object, None], seconds: float) -> str | None:
        """None if the work ends within `seconds` after a stop from outside; otherwise why it did not."""
        working = asyncio.ensure_future(work)
        try:
            if not await self.stop.ends(working, seconds):
                return too_late(f"the backend did not answer within the {seconds:g} s that are left of a stop")
            working.result()
        except RunError as error:
            return str(error)
        finally:
            await cancelled(working)
        return None

    async def over(self) -> None:
        """Training did not complete. Returns if that is in order; otherwise raises the error that ended it."""
        if self._lost_because is not None:
            logger.warning("the last %d steps are lost: %s", self._lost_steps, self._lost_because)
        if self.stop.cause is not None:
            raise self.stop.cause
        if self._lost_because is not None:
            raise BackendError(
                f"stopped on request, but the last {self._lost_steps} steps could not be saved: {self._lost_because}; "
                f"the run can continue from step {self.state.progress.saved}"
            )
        dropped = await self._dropped() if self.state.opened is not None else {}
        self.state.results.write(
            outcome="stopped", steps_trained=self.state.progress.saved, metrics=self.state.metrics, **dropped
        )
        await self.say("done", STOPPED_REASON)

    @property
    def _lost_steps(self) -> int:
        return self.state.progress.counted - self.state.progress.saved

    async def _dropped(self) -> dict[str, int]:
        """Rollouts that are queued at the api of this machine: they are lost when it stops."""
        with contextlib.suppress(TimeoutError, RunError):  # a count is not worth the grace period
            rollouts = (await asyncio.wait_for(self.reports.accounting.read_books(), COUNT_SECONDS)).rollouts
            waiting = rollouts.buffered + rollouts.queued + rollouts.delivered
            logger.info("%d rollouts that were not trained yet are dropped with this attempt", waiting)
            return {"dropped_at_stop": waiting}
        return {}

    async def failed(self, error: RunError) -> None:
        """Tell the environment why the run is over, and keep its best weights."""
        await self.say("failed", str(error))
        if self.state.opened is not None:
            await self.weights.best.keep(KEEP_SECONDS)

    async def say(self, state: Literal["done", "failed"], reason: str | None) -> None:
        """The final report to the environment and the backend. Neither is waited for long."""
        with contextlib.suppress(TimeoutError, RunError):
            await asyncio.wait_for(self.lease.end(state, reason), FAREWELL_SECONDS)
        if self.state.opened is not None:
            await self.state.opened.backend.close("success" if state == "done" else "errored", CLOSE_SECONDS)


def too_late(sentence: str) -> str:
    """With what the backend says, if it has let the trainer wait."""
    paused = HEARD.paused(TRAINING)
    return f"{sentence} ({paused.what}: {paused.reason})" if paused else sentence


@dataclass(frozen=True)
class TrainerAttempt:
    """`companions` never end by themselves, and run as long as the attempt; `vocabulary` is the number of token ids."""

    state: TrainerState
    config: RunConfig
    vocabulary: int
    stop: StopRequest
    surroundings: StepSurroundings
    generator: Generator
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
                self._train(opening),
                opening.url,
                opening.deadline,
                self._backend_owes_answers,
                self.seconds_unanswered,
            )
            if self.state.complete:
                await self._conclude(opening)
                return
            await self.ending.save_what_was_trained(trouble)
        await self.ending.over()

    async def _begin(self, opened: Opened) -> None:
        """The first sample has come back: serve inference, register, and report readiness."""
        weights, reports = self.ending.weights, self.ending.reports
        self.surroundings.opened(opened)
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
            return not await self._open_again(opening, error)
        finally:
            await cancelled(evaluating)
        return True

    # The loop, which begins again each time the backend is lost.

    async def _train(self, opening: TrainingOpener) -> str | None:
        """Train until done or asked to stop. Returns why the weights cannot be saved, None if they can."""
        while True:
            try:
                return await self._train_until_lost()
            except BackendLostError as error:
                if self.stop.asked:
                    return f"the backend was lost: {error}"
                if not await self._open_again(opening, error):
                    return f"the backend was lost and not yet open again: {error}"

    async def _open_again(self, opening: TrainingOpener, error: BackendLostError) -> bool:
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
        self.surroundings.weights.write_opened()
        state.not_ready = None
        logger.info("continuing after step %d in training run %s", opened.step, opened.training.run_id)
        return True

    def seconds_unanswered(self) -> float:
        """For how long nothing that the backend was asked has been answered. While it is opened again, that says so."""
        if self.state.not_ready:
            return 0.0
        now, call = time.monotonic(), self.state.session.training.call
        return max(now - call[1] if call else 0.0, self.generator.seconds_unanswered(now))

    async def _train_until_lost(self) -> str | None:
        training = asyncio.ensure_future(self._train_and_save(self.state.session))
        stopping = asyncio.ensure_future(self.stop.wait())
        ends: tuple[asyncio.Future[Any], ...] = (training, stopping, self.state.weights_lost)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self.stop.asked:
                self.generator.closed_because = "the trainer is stopping"
                HEARD.stopping = True
                if not await self._ends(training):
                    return too_late("the step in progress did not end in time")
            elif not training.done():
                self.state.weights_lost.result()
            training.result()
        except WithdrawnError as error:
            logger.info("the step in progress is given up: %s", error)
        except (BackendError, BillingError, CredentialsError, DivergedError):
            raise
        except RunError as error:  # from the api or the environment: the weights are good, and worth saving
            self.stop.ask(error)
        finally:
            await cancelled(stopping, training)
        return None

    async def _ends(self, training: "asyncio.Future[None]") -> bool:
        """Whether the step in progress ends in the time that a stop leaves. Its own save has the time of saving."""
        schedule = self.ending.schedule
        return await self.stop.ends(training, schedule.step_by(self.state.save_seconds)) or (
            self.state.status.phase == "saving" and await self.stop.ends(training, schedule.saved_by)
        )

    async def _train_and_save(self, opened: Opened) -> None:
        steps = range(opened.step, self.state.progress.total)
        await train(
            self.surroundings, training=opened.training, policy=self.state.policy, config=self.config, steps=steps
        )
        await self.surroundings.end()

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
        except (EnvironmentLostError, SilenceError):
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
