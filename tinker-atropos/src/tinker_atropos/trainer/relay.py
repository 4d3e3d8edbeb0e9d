"""The environment's metrics on their way through the trainer: into `/status` and the run's one W&B run."""

import asyncio
from typing import Never

from tinker_atropos.trainer.api_client import ApiClient
from tinker_atropos.trainer.status import RunStatus
from tinker_atropos.trainer.wandb_sink import WandbSink

POLL_SECONDS = 1.0


class Relay:
    def __init__(self, api: ApiClient, status: RunStatus, sink: WandbSink) -> None:
        self._api = api
        self._status = status
        self._sink = sink
        self._last = 0

    async def keep(self) -> Never:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.collect()
            self._status.queued_groups = await self._api.queue_size()

    async def collect(self) -> None:
        """Take over what was reported since the last call."""
        answer = await self._api.metrics(after=self._last)
        self._last = answer.last
        for record in answer.records:
            self._status.relayed(record)
            self._sink.log_report(record.step, record.metrics)
