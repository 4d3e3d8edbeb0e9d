"""How an attempt ends: the final evaluation, a stop with the weights saved, and the last word.

Who stops a process from outside waits 25 s for it: each part has its last second, counted from that moment. Without
such a stop the backend's deadline is bound enough.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal

from tinker_atropos.errors import BackendError, RunError
from tinker_atropos.trainer.api_client import ApiClient
from tinker_atropos.trainer.lease import Lease
from tinker_atropos.trainer.opening import Opened
from tinker_atropos.trainer.progress import Progress
from tinker_atropos.trainer.relay import Relay
from tinker_atropos.trainer.result_file import ResultFile
from tinker_atropos.trainer.status import RunStatus
from tinker_atropos.trainer.stopping import StopRequest, cancelled, unless_stopped

logger = logging.getLogger(__name__)

SAVED_BY_SECONDS = 17.0
KEPT_BY_SECONDS = 15.0
COUNT_SECONDS = 1.0
FAREWELL_SECONDS = 1.5
CLOSE_SECONDS = 1.0
EVALUATION_SECONDS = 1800.0
"""Longest wait for the environment's final evaluation."""

ABSENT_SECONDS = 10.0
"""How long to wait at the end for an environment that never held a lease (one without our runner)."""

STOPPED_REASON = "the run was stopped on request"


@dataclass
class Ending:
    api: ApiClient
    lease: Lease
    relay: Relay
    status: RunStatus
    results: ResultFile
    stop: StopRequest
    progress: Progress
    _lost_because: str | None = None

    async def final_evaluation(self) -> None:
        """Say that training is done, and wait for the environment to evaluate the final weights."""
        self.status.phase = "done"
        await self.api.report_progress(self.progress.total, done=True)
        logger.info("training is done; the environment evaluates the final weights")
        await unless_stopped(self.lease.environment_finished(EVALUATION_SECONDS, ABSENT_SECONDS), self.stop)
        await self.relay.collect()

    async def succeeded(self, opened: Opened) -> None:
        self.results.write(outcome="succeeded", metrics=dict(self.status.metrics))
        await self.say("done", None, opened)

    async def save_what_was_trained(
        self, opened: Opened, trouble: str | None, save: Callable[[Opened], Coroutine[Any, Any, None]]
    ) -> None:
        """Save the weights, to be kept until the run goes on. `trouble`: why that is not possible any more."""
        self.status.phase = "saving"
        if trouble is None and self.progress.weights > self.progress.saved:
            trouble = await self._in_time(save(opened), SAVED_BY_SECONDS)
        elif trouble is None and self.status.checkpoint and self.status.checkpoint["expiresAt"]:
            await self._keep_last_checkpoint(opened)
        if trouble is not None and self.progress.counted > self.progress.saved:
            self._lost_because = trouble

    async def _keep_last_checkpoint(self, opened: Opened) -> None:
        """Nobody knows when a stopped run goes on: its last state must not expire meanwhile."""
        path = self.results.result.state_path
        assert path is not None
        trouble = await self._in_time(opened.backend.stored.keep_for_ever(path), KEPT_BY_SECONDS)
        if trouble is not None:
            logger.warning("%s still expires at %s: %s", path, self.results.result.expires_at, trouble)
            return
        self.status.checkpoint = {**(self.status.checkpoint or {}), "expiresAt": None}
        self.results.write(expires_at=None)

    async def _in_time(self, work: Coroutine[Any, Any, None], seconds: float) -> str | None:
        """None when the work ends within the seconds after a stop from outside; else why it did not."""
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

    async def over(self, opened: Opened | None) -> None:
        """The training did not come to its end. Returns when that is in order; raises what ended it otherwise."""
        self._log_losses()
        if self.stop.cause is not None:
            raise self.stop.cause
        if self._lost_because is not None:
            raise BackendError(
                f"stopped on request, but the last {self._lost_steps} steps could not be saved: {self._lost_because}; "
                f"the run can go on from step {self.progress.saved}"
            )
        metrics = dict(self.status.metrics)
        if opened is not None:
            metrics |= await self._dropped()
        self.results.write(outcome="stopped", steps_trained=self.progress.saved, metrics=metrics)
        await self.say("done", STOPPED_REASON, opened)

    @property
    def _lost_steps(self) -> int:
        return self.progress.counted - self.progress.saved

    def _log_losses(self) -> None:
        if self._lost_because is not None:
            logger.warning("the last %d steps are lost: %s", self._lost_steps, self._lost_because)

    async def _dropped(self) -> dict[str, float]:
        """Rollouts that wait at the api of this machine: they end with it."""
        with contextlib.suppress(TimeoutError, RunError):  # a count is not worth the grace period
            rollouts = (await asyncio.wait_for(self.api.books(), COUNT_SECONDS)).rollouts
            waiting = rollouts.buffered + rollouts.queued + rollouts.delivered
            logger.info("%d rollouts that were not trained yet are dropped with this attempt", waiting)
            return {"droppedAtStop": waiting}
        return {}

    async def say(self, state: Literal["done", "failed"], reason: str | None, opened: Opened | None) -> None:
        """The last word to the environment and the backend. Neither is waited for long."""
        with contextlib.suppress(TimeoutError, RunError):
            await asyncio.wait_for(self.lease.end(state, reason), FAREWELL_SECONDS)
        if opened is not None:
            await opened.backend.close("success" if state == "done" else "errored", CLOSE_SECONDS)
