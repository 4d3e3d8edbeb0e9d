"""How an attempt ends: the final evaluation, a stop with the weights saved, and the final report.

A process that is stopped from outside has 25 s: each part has its own deadline, counted from that moment. Without
such a stop, the backend's deadline is enough.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Literal

from rl_contract.trainer_messages import ResultCheckpoint
from tinker_atropos.errors import BackendError, RunError
from tinker_atropos.trainer.api_reports import ApiReports
from tinker_atropos.trainer.current_weights import CurrentWeights
from tinker_atropos.trainer.reporting.relay import Relay
from tinker_atropos.trainer.stop_request import StopRequest, cancelled, unless_stopped
from tinker_atropos.trainer.trainer_state import TrainerState
from tinker_atropos.trainer.trajectories.lease import TrainerLease

logger = logging.getLogger(__name__)

SAVED_BY_SECONDS = 17.0
KEPT_BY_SECONDS = 15.0
COUNT_SECONDS = 1.0
FAREWELL_SECONDS = 1.5
CLOSE_SECONDS = 1.0
REPLACED_SECONDS = 1200.0
"""How much longer than an evaluation's deadline the final one is waited for: a new environment may have to set up."""

KEEP_SECONDS = 5.0
"""For the last call of a run that failed, whose result has what it needs, and for the last files of rollouts."""

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
        peer = await unless_stopped(self.lease.environment_finished(seconds, ABSENT_SECONDS), self.stop)
        if peer is not None and peer.state in ("away", "failed", "lost"):
            why = f"the environment is {peer.state}" + (f": {peer.reason}" if peer.reason else "")
            logger.warning("the final weights may not have been evaluated: %s", why)
        await unless_stopped(self.relay.collect(), self.stop)
        await unless_stopped(self.reports.done(), self.stop)

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
            trouble = await self._in_time(self.weights.save(forever=True), SAVED_BY_SECONDS)
        if self.state.status.checkpoint and self.state.status.checkpoint.expires_at:
            await self._keep_last_checkpoint()
        if trouble is not None and self.state.progress.counted > self.state.progress.saved:
            self._lost_because = trouble
        await self._tidy()

    async def _tidy(self) -> None:
        """Let the best weights never expire; everything that matters more is saved by now."""
        if self.state.opened is not None:
            trouble = await self._in_time(self.weights.best.tidy(), KEPT_BY_SECONDS)
            if trouble is not None:
                logger.warning("the checkpoints of evaluations are as they were: %s", trouble)

    async def _keep_last_checkpoint(self) -> None:
        """A stopped run may be resumed at any time: its last state must not expire until then."""
        path = self.state.results.result.state_path
        assert path is not None
        trouble = await self._in_time(self.weights.keeper.stored.keep_forever(path), KEPT_BY_SECONDS)
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
                return f"the backend did not answer within the {seconds:g} s that are left of a stop"
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
            rollouts = (await asyncio.wait_for(self.reports.api.books(), COUNT_SECONDS)).rollouts
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
