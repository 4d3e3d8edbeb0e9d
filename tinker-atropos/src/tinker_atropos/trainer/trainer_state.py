"""The state of a run in this process: everything that changes while it trains, in one value.

It is created once and handed to every part that uses it, so no part reaches through another one for it.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Never

from rl_contract.status_metrics import RunMetrics
from tinker_atropos.result import ResultFile
from tinker_atropos.settings import RecordedCheckpoint
from tinker_atropos.trainer.backend.open_training import Opened
from tinker_atropos.trainer.backend.policy import CurrentPolicy
from tinker_atropos.trainer.data.step_counts import StepCounts
from tinker_atropos.trainer.reporting.trainer_status import LiveStatus

Failure = asyncio.Future[Never]
"""Awaited alongside the work; it only ever ends with an error."""


def no_failure() -> Failure:
    failure: Failure = asyncio.get_running_loop().create_future()
    failure.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved, even if not awaited
    return failure


@dataclass
class TrainerState:
    """`progress` counts steps, `status` is what `/status` shows, `results` what remains after the process has exited.

    opened        the session with the backend; None before the backend answered
    items         where the run is in its data, as the newest checkpoint has it; None: that is not known
    policy        the weights that inference samples from
    not_ready     why the trainer is not ready yet, or no longer ready
    silent        why the backend does not answer, while the trainer opens it
    save_seconds  what saving the state took last time; None: this process has not saved it yet
    unanswered    why it does not answer, while it is asked to train and to sample
    weights_lost  fails when sampling finds that the backend has lost the weights of `opened`
    failed        fails when inference hits an error that ends the run
    """

    progress: StepCounts
    status: LiveStatus
    results: ResultFile
    opened: Opened | None = None
    items: str | None = None
    policy: CurrentPolicy = field(default_factory=CurrentPolicy)
    not_ready: str | None = "the trainer waits for its backend"
    silent: str | None = None
    unanswered: str | None = None
    save_seconds: float | None = None
    weights_lost: Failure = field(default_factory=no_failure)
    failed: Failure = field(default_factory=no_failure)

    @property
    def session(self) -> Opened:
        assert self.opened is not None, "only asked for once the backend has answered"
        return self.opened

    @property
    def metrics(self) -> RunMetrics:
        """The latest ones, as messages have them."""
        return self.status.run_metrics

    @property
    def recorded(self) -> RecordedCheckpoint | None:
        """The checkpoint that these weights can be opened from again, once there is one."""
        path = self.results.result.state_path
        return RecordedCheckpoint(self.progress.saved, path) if path else None

    def ends_early(self, step: int, reason: str) -> None:
        """The run ends with this step, as a success."""
        self.progress.total = step
        self.status.ends_early(step, reason)
        self.results.hold(stopped_early=reason)

    @property
    def complete(self) -> bool:
        """Whether all steps are trained (an early stop leaves no others) and the final sampler weights are saved."""
        return self.progress.saved == self.progress.total and self.results.result.sampler_path is not None
