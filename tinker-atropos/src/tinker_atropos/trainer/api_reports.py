"""What the trainer tells the trajectory API: that the run begins, which steps are trained and saved, and its end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.trainer.reporting.accounting import Accounting
from tinker_atropos.trainer.stop_request import cancelled
from tinker_atropos.trainer.trainer_state import TrainerState
from tinker_atropos.trainer.trajectories.api_client import ApiClient
from tinker_atropos.trainer.update.ess_steering import AllowedStaleness


@dataclass(frozen=True)
class ApiReports:
    api: ApiClient
    state: TrainerState
    accounting: Accounting
    allowed: AllowedStaleness

    async def register(self, config: RunConfig, step: int, vocabulary: int) -> None:
        state = self.state.status.environment_state
        await self.api.register(
            config, step, vocabulary=vocabulary, max_staleness=self.allowed.steps, environment_state=state,
            items=self.state.items,
        )  # fmt: skip

    @contextlib.asynccontextmanager
    async def trained(self) -> AsyncIterator[None]:
        """Tell which step is trained, while the block waits for something else."""
        report = asyncio.ensure_future(self._trained())
        try:
            yield
            await report
        finally:
            await cancelled(report)

    async def _trained(self) -> None:
        progress = self.state.progress
        step = progress.weights
        if step != progress.reported:
            await self.api.report_progress(step, self.accounting.totals(), max_staleness=self.allowed.steps)
            progress.reported = step

    async def saved(self, step: int) -> None:
        """Let the api discard what the checkpoint of this step covers."""
        await self.api.report_progress(step, self.accounting.totals(), checkpoint_step=step)

    async def done(self) -> None:
        await self.api.report_progress(self.state.progress.total, self.accounting.totals(), done=True)
