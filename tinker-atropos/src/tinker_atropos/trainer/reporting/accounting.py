"""What a run shows besides its steps: where all rollouts are, and what the trainer is waiting for."""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Never

from rl_contract.shared_env import SharedEnvSection
from rl_contract.trainer_messages import ItemAccount
from tinker_atropos.errors import RunError
from tinker_atropos.trainer.backend.token_use import TokenUse
from tinker_atropos.trainer.data.datums import TrainingBatch
from tinker_atropos.trainer.inference.generation import Generator
from tinker_atropos.trainer.reporting.spending import Spending
from tinker_atropos.trainer.reporting.trainer_status import LiveStatus
from tinker_atropos.trainer.reporting.wait_reasons import GroupsMade, WaitForBatch, slow_call, why_no_batch
from tinker_atropos.trainer.trajectories.api_client import ApiClient, BooksAnswer
from tinker_atropos.trainer.trajectories.lease import TrainerLease

POLL_SECONDS = 2.0
STEPS_REMEMBERED = 1_000


@dataclass(frozen=True, slots=True)
class _Wait:
    since: float
    made_before: GroupsMade


@dataclass
class Accounting:
    api: ApiClient
    lease: TrainerLease
    status: LiveStatus
    generator: Generator
    env: SharedEnvSection
    spending: Spending = field(default_factory=lambda: Spending(TokenUse()))
    _wait: _Wait | None = None
    _trained: dict[str, int] = field(default_factory=lambda: {"rollouts": 0, "tokens": 0})
    _dropped: dict[str, int] = field(default_factory=dict)
    _left_out: Counter[str] = field(default_factory=Counter)
    _sampled_before: int = 0
    _of_step: dict[str, float] = field(default_factory=dict)
    _steps: deque[tuple[float, int]] = field(default_factory=lambda: deque([(time.time(), 0)], STEPS_REMEMBERED))

    async def keep(self) -> Never:
        while True:
            with contextlib.suppress(RunError):  # for display only: the lease detects that the api is gone
                await self.read_books()
            await asyncio.sleep(POLL_SECONDS)

    async def read_books(self) -> BooksAnswer:
        """The api's, which are shown from now on. Raises InternalError."""
        books = await self.api.books()
        self._dropped, came_at = books.rollouts.dropped, books.oldest_queued_at
        self.status.oldest_queued_step = None if came_at is None else self._step_at(came_at)
        self.status.items = books.items or self.status.items
        return books

    def _step_at(self, moment: float) -> int:
        """The policy step at a moment (seconds since the epoch): what arrived then is from it or an older one."""
        steps = (step for begun_at, step in reversed(self._steps) if begun_at <= moment)
        return next(steps, self._steps[0][1])

    def trained(self, step: int, batch: TrainingBatch, seconds: float) -> None:
        """`seconds` since the metrics of the step before."""
        self._steps.append((time.time(), step))
        sampled, tokens = self.generator.totals.training.tokens, batch.trained_tokens
        self._of_step = self.spending.step_trained()
        if seconds > 0:
            self._of_step["tokens/sampled_per_second"] = (sampled - self._sampled_before) / seconds
            self._of_step["tokens/trained_per_second"] = tokens / seconds
        self._sampled_before = sampled
        self._trained["rollouts"] += batch.trained_rollouts
        self._trained["tokens"] += tokens
        self._left_out.update(batch.left_out)

    def books(self) -> dict[str, dict[str, int]]:
        """Rollouts and tokens since the start of this process: sampled by purpose, trained, dropped by reason."""
        dropped = {**self._dropped, **{reason: count for reason, count in self._left_out.items() if count}}
        return {**self.generator.totals.to_wire(), "trained": self._trained, "dropped": dropped}

    def metrics(self) -> dict[str, float]:
        """The share of what was sampled for training that was trained, since the start of this process, and what the
        newest step did.
        """
        sampled, trained = self.generator.totals.training.tokens, self._trained["tokens"]
        return {
            "tokens/trained": float(trained),
            "tokens/trained_fraction": trained / sampled if sampled else 0.0,
            "tokens/prefilled": float(self.spending.used.prefill),
            **self._of_step,
            **_item_metrics(self.status.items),
        }

    def totals(self) -> dict[str, int]:
        """The books without what the api knows itself, flat: it shows them next to its own, to be balanced."""
        return {
            f"{book}_{unit}": count
            for book, counts in self.books().items()
            if book != "dropped"
            for unit, count in counts.items()
        }

    def opened(self, step: int) -> None:
        """Sampling begins, or continues, with the policy of this step."""
        self._steps.append((time.time(), step))

    @contextlib.contextmanager
    def waiting_for_batch(self) -> Iterator[None]:
        self._wait = _Wait(time.monotonic(), self.status.groups_made)
        try:
            yield
        finally:
            self._wait = None

    def waiting(self, call: tuple[str, float] | None, now: float) -> str | None:
        """What the trainer is waiting for, once it takes long. `now` and the call's start are from time.monotonic()."""
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


def _item_metrics(items: ItemAccount | None) -> dict[str, float]:
    if items is None:
        return {}
    counts = {
        "seen": items.seen,
        "trained": items.trained,
        "dropped": sum(items.dropped.values()),
        **{f"dropped/{reason}": count for reason, count in items.dropped.items()},
        "under_way": items.under_way,
        "again": items.again,
        "epoch": items.epoch,
    }
    return {f"items/{name}": float(count) for name, count in counts.items() if count is not None}
