"""What is shown of a run beside its steps: where all rollouts are, and what the trainer waits for."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Never

from tinker_atropos.config import SharedEnvSection
from tinker_atropos.errors import RunError
from tinker_atropos.trainer.api_client import ApiClient
from tinker_atropos.trainer.datums import Batch
from tinker_atropos.trainer.generation import Generator
from tinker_atropos.trainer.lease import Lease
from tinker_atropos.trainer.status import RunStatus
from tinker_atropos.trainer.waiting import GroupsMade, WaitForBatch, slow_call, why_no_batch

POLL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class _Wait:
    since: float
    made_before: GroupsMade


@dataclass
class Bookkeeping:
    api: ApiClient
    lease: Lease
    status: RunStatus
    generator: Generator
    env: SharedEnvSection
    _wait: _Wait | None = None
    _trained: dict[str, int] = field(default_factory=lambda: {"rollouts": 0, "tokens": 0})
    _dropped: dict[str, int] = field(default_factory=dict)

    async def keep(self) -> Never:
        while True:
            with contextlib.suppress(RunError):  # for display only: the lease notices an api that is gone
                self._dropped = (await self.api.books()).rollouts.dropped
            await asyncio.sleep(POLL_SECONDS)

    def trained(self, batch: Batch) -> None:
        self._trained["rollouts"] += batch.trained_rollouts
        self._trained["tokens"] += batch.trained_tokens

    def books(self) -> dict[str, dict[str, int]]:
        """Rollouts and tokens since the start of this process: sampled by purpose, trained, dropped by reason."""
        return {**self.generator.totals.to_wire(), "trained": self._trained, "dropped": self._dropped}

    @contextlib.contextmanager
    def waiting_for_batch(self) -> Iterator[None]:
        self._wait = _Wait(time.monotonic(), self.status.groups_made)
        try:
            yield
        finally:
            self._wait = None

    def waiting(self, call: tuple[str, float] | None, now: float) -> str | None:
        """What the trainer waits for, once it takes long. `now` and the call's beginning are of time.monotonic()."""
        if self._wait is None:
            return slow_call(call, now)
        return why_no_batch(
            WaitForBatch(
                seconds=now - self._wait.since,
                environment=self.lease.peer,
                made=self.status.groups_made.since(self._wait.made_before),
                seconds_without_sample=self.generator.seconds_idle(now),
                queued=self.status.queued_groups,
                group_rollouts=self.env.group_size,
                batch_rollouts=self.env.batch_size,
            )
        )
