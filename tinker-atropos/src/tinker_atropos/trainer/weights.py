"""The weights being trained: opened, saved, lost, and opened again; and the result file, written at each change."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any, Never

from tinker_atropos.errors import BackendLostError, RunError
from tinker_atropos.result import Result, ResultError, write_result
from tinker_atropos.trainer.backend.checkpoint_keeper import CheckpointKeeper
from tinker_atropos.trainer.backend.open_training import Opened
from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.data.progress import Progress
from tinker_atropos.trainer.reporting.trainer_status import RunStatus

Failure = asyncio.Future[Never]
"""Waited for beside the work; it only ever ends with an error."""


def no_failure() -> Failure:
    failure: Failure = asyncio.get_running_loop().create_future()
    failure.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, also when nobody waits for it
    return failure


class ResultFile:
    """Holds the result; nothing is written before the first `write`, so that a start says nothing it does not know."""

    def __init__(self, path: str | None, result: Result) -> None:
        self._path = path
        self.result = result

    def write(self, **changes: Any) -> None:
        self.result = replace(self.result, **changes)
        write_result(self._path, self.result)

    def write_failure(self, error: RunError) -> None:
        self.write(outcome="failed", error=ResultError(error.error_class, str(error)))


@dataclass
class Weights:
    """`opened` is None before the backend answered; `lost` fails when sampling finds that the backend lost them."""

    keeper: CheckpointKeeper
    policy: CurrentPolicy
    progress: Progress
    status: RunStatus
    results: ResultFile
    opened: Opened | None = None
    lost: Failure = field(default_factory=no_failure)

    @property
    def complete(self) -> bool:
        """All steps are trained, and the weights that the run is for are saved."""
        return self.progress.saved == self.progress.total and self.results.result.sampler_path is not None

    def go_on_with(self, opened: Opened) -> None:
        """Train these from now on, and sample from them."""
        self.opened = opened
        self.lost = no_failure()
        self.progress.opened(opened.step)
        self.status.step = self.progress.counted
        self.status.training_run_id = opened.training.run_id
        self.status.checkpoint = opened.resumed.to_wire() if opened.resumed else None
        self.policy.swap(Policy(opened.step, opened.sampler))

    def write_opened(self) -> None:
        """Say in the result what is trained, and which checkpoint it came from."""
        assert self.opened is not None
        resumed = self.opened.resumed
        self.results.write(
            steps_trained=self.opened.step,
            training_run_id=self.opened.training.run_id,
            state_path=resumed.path if resumed else None,
            expires_at=resumed.expires_at if resumed else None,
        )

    async def save(self, *, for_ever: bool) -> None:
        """Save their state. The final one, and what a stop leaves behind, is `for_ever`."""
        assert self.opened is not None
        checkpoint = await self.keeper.save_state(self.opened.training, self.progress.weights, for_ever=for_ever)
        self.progress.saved = checkpoint.step
        self.status.checkpoint = checkpoint.to_wire()
        self.results.write(
            steps_trained=checkpoint.step,
            state_path=checkpoint.path,
            expires_at=checkpoint.expires_at,
            metrics=dict(self.status.metrics),
        )

    async def save_for_inference(self) -> None:
        """Save what the run is for, once all steps are trained."""
        assert self.opened is not None
        path = await self.keeper.save_sampler(self.opened.training, self.progress.total)
        self.results.write(sampler_path=path)

    def sampling_lost(self, error: BackendLostError) -> None:
        """A sampler is gone. Those of sessions that were given up before say nothing of these weights."""
        current = self.opened is not None and error.training_run_id == self.opened.training.run_id
        if current and not self.lost.done():
            self.lost.set_exception(error)
