"""The environments' metrics, relayed by the trainer to `/status` and the run's one W&B run.

Metrics that an environment names itself carry its own name (`<name>_<k>_…`). The runner's `env/…` of environment k,
from 1 on, go to W&B as `env_<k>/…`: two environments' counts are two curves. So does any environment's metric whose
name is one of the trainer's or W&B's own: it must not be mistaken for that.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Never

from rl_contract.logged_metrics import describe
from tinker_atropos.errors import DivergedError
from tinker_atropos.trainer.reporting.trackers.tracker import Tracker
from tinker_atropos.trainer.reporting.trainer_status import LiveStatus
from tinker_atropos.trainer.trajectories.api_client import ApiClient, MetricsRecord

POLL_SECONDS = 1.0
MAX_NAMES = 2_000
"""How many different names go to W&B: environments choose them, and may be untrusted code."""

NOT_FOR_ENVIRONMENTS = ("_*", "result/*", "samples")
"""W&B's own names (`_step`), those of the run's summary, and that of the table."""

logger = logging.getLogger(__name__)


@dataclass
class Relay:
    """`on_evaluation` gets the step and the record of each result."""

    api: ApiClient
    status: LiveStatus
    sink: Tracker
    on_evaluation: Callable[[int, MetricsRecord], None]
    _last: int = 0
    _names: set[str] = field(default_factory=set)

    async def keep(self) -> Never:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.collect()
            self.status.queued_groups = await self.api.queue_size()

    async def collect(self) -> None:
        """Take over what was reported since the last call. Raises DivergedError once the policy has collapsed."""
        answer = await self.api.metrics(after=self._last)
        self._last = answer.last
        for record in answer.records:
            self.status.relayed(record)
            if record.evaluated_step is not None:
                self.on_evaluation(record.evaluated_step, record)
            self.sink.log_report(record.step, self._bounded(curves(record.environment, record.metrics)))
            if self.status.collapsed:
                raise DivergedError(self.status.collapsed)

    def _bounded(self, metrics: Mapping[str, float]) -> dict[str, float]:
        if len(self._names) >= MAX_NAMES:
            return {name: value for name, value in metrics.items() if name in self._names}
        self._names.update(metrics)
        if len(self._names) >= MAX_NAMES:
            logger.warning("environments reported %d different metrics: W&B gets no more of them", len(self._names))
        return dict(metrics)


def curves(environment: int | None, metrics: Mapping[str, float]) -> dict[str, float]:
    """An environment's metrics, under their names in W&B."""
    return {_curve(environment or 0, name): value for name, value in metrics.items()}


def _curve(environment: int, name: str) -> str:
    if environment and name.startswith("env/"):
        return f"env_{environment}/{name.removeprefix('env/')}"
    metric = describe(name)
    taken = any(fnmatchcase(name, pattern) for pattern in NOT_FOR_ENVIRONMENTS)
    if taken or (metric is not None and metric.source == "trainer"):
        return f"env_{environment}/{name}"
    return name
