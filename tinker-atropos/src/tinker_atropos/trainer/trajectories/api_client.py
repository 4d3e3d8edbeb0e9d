"""The trajectory API as the trainer uses it. The api may restart: calls are retried within a deadline."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import httpx
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rl_contract.processes import API_URL, NO_SPACE_STATUS, PeerState, ReportedState
from rl_contract.status_metrics import EvaluatedFigure
from rl_contract.trainer_messages import ItemAccount
from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.errors import InternalError, SilenceError, in_one_line
from tinker_atropos.held_connection import SILENT_SECONDS
from tinker_atropos.running_time import running_seconds
from tinker_atropos.trainer.standstill import Standstill
from tinker_atropos.trainer.trajectories.deliveries import DeliveredBatch, read_delivery

RETRY_SECONDS = 60.0
"""How long the api may be unavailable: it restarts its worker within seconds, and starts alongside the trainer."""

BATCH_WAIT_SECONDS = 5
LEASE_TTL_SECONDS = 15
ACCEPTED = "application/x-ndjson, application/json"

Answer = TypeVar("Answer", bound=BaseModel)


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Peer(_Wire):
    """The environments' state, according to their leases; `away`: none is live, and another one may still start.
    `environment_state` is for checkpoints; None: it has none, or it is not known yet.
    """

    state: PeerState = "absent"
    reason: str | None = None
    warnings: tuple[str, ...] = ()
    environment_state: str | None = None


class LeaseAnswer(_Wire):
    """`total_steps` is None until a trainer has registered. `no_space`: the api's disk is full, and senders wait."""

    peer: Peer
    total_steps: int | None = None
    no_space: str | None = None


class Account(_Wire):
    """Counts of all groups, or all rollouts: received = buffered + queued + delivered + trained + dropped."""

    received: int
    duplicates: int = 0
    refused: dict[str, int] = Field(default_factory=dict)
    buffered: int = 0
    queued: int = 0
    delivered: int = 0
    trained: int = 0
    dropped: dict[str, int] = Field(default_factory=dict)


class BooksAnswer(_Wire):
    """`oldest_queued_at`: when the group that has waited longest arrived, in seconds since the epoch."""

    groups: Account
    rollouts: Account
    oldest_queued_at: float | None = None
    items: ItemAccount | None = None


class QueueSize(_Wire):
    queue_size: int


class ItemsAnswer(_Wire):
    items: str


class MetricsRecord(_Wire):
    """One relayed report: metrics by name, the environment's own step, and which environment it is. Of an evaluation,
    `metric` is the environment's own name of the held-out figure, and `temperature` what it was sampled at.
    """

    step: int | None = None
    metrics: dict[str, float]
    source: str
    environment: int | None = None
    metric: str | None = None
    temperature: float | None = None

    @property
    def evaluated_step(self) -> int | None:
        """The step whose evaluation this is the result of. Only the runner knows it; None for any other report."""
        return self.step if self.source == "evaluation" else None

    @property
    def held_out(self) -> EvaluatedFigure | None:
        """The held-out figure, if this is the result of an evaluation that has one."""
        found = None if self.evaluated_step is None else EvaluatedFigure.found(self.metrics, step=self.evaluated_step)
        return found and found.with_changes(metric=self.metric or found.metric, temperature=self.temperature)


class MetricsAnswer(_Wire):
    records: list[MetricsRecord]
    last: int


class ApiClient:
    """Every method raises InternalError when the api is unavailable for longer than RETRY_SECONDS, and SilenceError
    when it takes requests and answers none for SILENT_SECONDS: it may be frozen. While its disk is full it waits, and
    `standstill` says so.
    """

    def __init__(
        self, url: str = API_URL, retry_seconds: float = RETRY_SECONDS, standstill: Standstill | None = None
    ) -> None:
        self.url = url
        self._standstill = standstill or Standstill()
        self._no_space: dict[object, str] = {}
        self._retry_seconds = retry_seconds
        self._client = httpx.AsyncClient(base_url=url, trust_env=False, timeout=30, headers={"accept": ACCEPTED})

    async def close(self) -> None:
        await self._client.aclose()

    async def register(
        self,
        config: RunConfig,
        step: int,
        *,
        vocabulary: int,
        max_staleness: int,
        environment_state: str | None,
        items: str | None,
    ) -> None:
        """The run continues after `step`. `vocabulary` (token ids), `max_staleness` (policy steps), and what follows
        are extensions of Atropos' route, whose `batch_size` counts rollouts, and lengths are in tokens.
        """
        env, tinker = config.env, config.tinker
        body = {
            "batch_size": env.batch_size,
            "max_token_len": tinker.max_token_trainer_length,
            "num_steps": env.total_steps,
            "starting_step": step,
            "save_checkpoint_interval": tinker.save_checkpoint_interval,
            "checkpoint_dir": tinker.checkpoint_dir,
            "wandb_project": tinker.wandb_project or "",
            "wandb_group": tinker.wandb_group or "",
            "max_staleness": max_staleness,
            "vocabulary": vocabulary,
            "environment_state": environment_state,
            "items": items,
        }
        await self._call("POST", "/register", body=body)

    async def items(self, step: int) -> str:
        """Where the run is in its data after `step` steps, for a checkpoint and for `register`."""
        return (await self._ask(ItemsAnswer, "GET", "/rl/items/state", query={"step": step})).items

    async def batch(self, step: int) -> DeliveredBatch | None:
        """Batch `step`, the same one each time it is requested; None if it was not full within BATCH_WAIT_SECONDS.

        A batch that lost groups to `drop` is refilled.
        """
        asked = running_seconds()
        content = await self._call("GET", "/batch", query={"wait": BATCH_WAIT_SECONDS, "step": step})
        waited = running_seconds() - asked
        try:
            return read_delivery(content, waited)
        except ValueError as error:
            raise InternalError(f"GET {self.url}/batch gave an unexpected answer: {error}") from None

    async def drop(self, ids: Sequence[int], reason: str) -> None:
        """Remove groups from their batch for good; they are counted under `reason`."""
        await self._call("POST", "/rl/drop", body={"ids": list(ids), "reason": reason})

    async def books(self) -> BooksAnswer:
        """What happened to everything that the api received."""
        return await self._ask(BooksAnswer, "GET", "/rl/books")

    async def queue_size(self) -> int:
        """Groups waiting at the api."""
        return (await self._ask(QueueSize, "GET", "/status")).queue_size

    async def renew_lease(self, state: ReportedState, reason: str | None = None) -> LeaseAnswer:
        body = {"state": state, "reason": reason, "ttl_seconds": LEASE_TTL_SECONDS}
        answer = await self._ask(LeaseAnswer, "PUT", "/rl/lease/trainer", body=body)
        self._note_room("lease", answer.no_space)
        return answer

    async def report_progress(
        self,
        steps_trained: int,
        totals: Mapping[str, int],
        *,
        done: bool = False,
        checkpoint_step: int | None = None,
        max_staleness: int | None = None,
    ) -> None:
        """Batches below `checkpoint_step` are never requested again: the api discards their content. `max_staleness`:
        how old rollouts may become from now on, in policy steps.
        """
        body = {
            "steps_trained": steps_trained,
            "training_done": done,
            "checkpoint_step": checkpoint_step,
            "totals": totals,
            "max_staleness": max_staleness,
        }
        await self._call("POST", "/rl/progress", body=body)

    async def metrics(self, after: int) -> MetricsAnswer:
        """The environment's relayed metrics with a sequence number above `after`."""
        return await self._ask(MetricsAnswer, "GET", "/rl/metrics", query={"after": after})

    async def _ask(self, answer: type[Answer], method: str, path: str, **parts: Any) -> Answer:
        content = await self._call(method, path, **parts)
        try:
            return answer.model_validate_json(content)
        except ValidationError as error:
            raise InternalError(f"{method} {self.url}{path} gave an unexpected answer: {in_one_line(error)}") from None

    async def _call(
        self, method: str, path: str, *, body: dict[str, Any] | None = None, query: dict[str, int] | None = None
    ) -> bytes:
        call = object()
        try:
            return await self._until_answered(call, method, path, json=body, params=query)
        finally:
            self._note_room(call, None)

    def _note_room(self, source: object, no_space: str | None) -> None:
        """The disk is full as long as any source says so: a call that waits, or the api's answer to the lease."""
        if no_space is not None:
            self._no_space[source] = no_space
            self._standstill.begin("DiskFull", no_space)
        elif self._no_space.pop(source, None) is not None and not self._no_space:
            self._standstill.end("DiskFull")

    async def _until_answered(self, call: object, method: str, path: str, **parts: Any) -> bytes:
        answered_at = refused_since = running_seconds()
        pause = 0.05
        while True:
            try:
                response = await self._client.request(method, path, **parts)
            except httpx.TimeoutException:
                refused_since = running_seconds()
                if refused_since > answered_at + SILENT_SECONDS:
                    raise SilenceError(
                        f"the trajectory API at {self.url} took requests and answered none for {SILENT_SECONDS:g} s "
                        f"({method} {path}): frozen, or short of CPU?"
                    ) from None
                continue
            except httpx.TransportError as error:
                trouble = f"{type(error).__name__}: {error}"
            else:
                if response.is_success:
                    return response.content
                trouble = f"HTTP {response.status_code}: {response.text[:200]}"
                if response.status_code < 500:
                    raise InternalError(f"{method} {self.url}{path} was refused: {trouble}")
                if response.status_code == NO_SPACE_STATUS:
                    self._note_room(call, str(orjson.loads(response.content)["detail"]))
                    await asyncio.sleep(pause)
                    answered_at = refused_since = running_seconds()
                    continue
            answered_at = running_seconds()
            if answered_at + pause > refused_since + self._retry_seconds:
                raise InternalError(
                    f"the trajectory API at {self.url} (RL_API_URL) was away for {self._retry_seconds:g} s "
                    f"({method} {path}: {trouble})"
                )
            await asyncio.sleep(pause)
            pause = min(1.0, 2 * pause)
