"""What the trajectory API does, without HTTP: the journal's truth, the clock, and who waits for whom."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from tinker_atropos.trajectory_api.bodies import Refusal
from tinker_atropos.trajectory_api.journal import Journal, JournalError
from tinker_atropos.trajectory_api.leases import Lease, LeaseView, Role, view
from tinker_atropos.trajectory_api.pacing import Pace, over_reason, pace, status_of_env
from tinker_atropos.trajectory_api.records import GroupCount, NewGroupState, ReceivedGroup, RegisteredEnv, RunState
from tinker_atropos.trajectory_api.requests import (
    EnvRegistration,
    LeaseReport,
    MetricsReport,
    ProgressReport,
    Registration,
)

ENV_SILENT_SECONDS = 15.0
"""An environment that has not asked for its status for so long has left (BaseEnv asks ten times a second)."""

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class _Sender:
    groups: Sequence[ReceivedGroup]
    states: asyncio.Future[list[NewGroupState]]


class TrajectoryService:
    """One run's trajectories. Its own memory holds only what may be lost: clocks, waiting requests and counters."""

    def __init__(self, journal: Journal, clock: Callable[[], float] = time.monotonic) -> None:
        self.journal = journal
        self._clock = clock
        self._writer = ThreadPoolExecutor(1, "journal")
        self._state = journal.run_state()
        self._environments = {env.env_id: env for env in journal.environments()}
        self._seen_at = dict.fromkeys(self._environments, clock())
        self._leases = {role: _lease(report, clock()) for role, report in self._state.leases.items()}
        self._registering = asyncio.Lock()
        self._arrival = asyncio.Event()
        self._senders: list[_Sender] = []
        self._commit: asyncio.Task[None] | None = None
        self._starving = False
        self._failures: dict[str, str] = {}
        self.refused: Counter[str] = Counter()
        self.received_groups = 0
        self.delivered_batches = 0

    def close(self) -> None:
        self._writer.shutdown()

    # The trainer's side.

    @property
    def registration(self) -> Registration | None:
        return self._state.registration

    async def register(self, registration: Registration) -> None:
        dropped = await self._write("register", self.journal.register, registration)
        self._state = self.journal.run_state()
        if dropped:
            self.refused["larger_than_batch"] += dropped
            logger.warning("dropped %d groups that are larger than batch_size %d", dropped, registration.batch_size)

    async def take_batch(self, wait_seconds: float, gone: Callable[[], Awaitable[bool]]) -> list[bytes] | None:
        """The next full batch, waited for. A client that is `gone` gets none."""
        if self.registration is None:
            return None
        if not self._state.started:
            await self._write("start", self.journal.start)
            self._state = self.journal.run_state()
        deadline = self._clock() + wait_seconds
        while not await gone():
            arrival = self._arrival
            batch = await self._take_batch_now(self.registration.batch_size)
            remaining = deadline - self._clock()
            if batch is not None or remaining <= 0:
                return batch
            try:
                await asyncio.wait_for(arrival.wait(), remaining)
            except TimeoutError:
                return None
        return None

    async def _take_batch_now(self, batch_size: int) -> list[bytes] | None:
        minimum_shares = {
            env.env_id: env.registration.min_batch_allocation
            for env in self.live_environments()
            if env.registration.min_batch_allocation is not None
        }
        batch = await self._write("take_batch", self.journal.take_batch, batch_size, minimum_shares)
        self._starving = batch is None
        self.delivered_batches += batch is not None
        return batch

    async def record_progress(self, report: ProgressReport) -> None:
        """Steps never go back within a registration: a report that was sent again, late, changes nothing."""
        steps = max(report.steps_trained, self._state.progress.steps_trained)
        done = report.training_done or self._state.progress.training_done
        report = report.model_copy(update={"steps_trained": steps, "training_done": done})
        await self._write("progress", self.journal.record_progress, report)
        self._state = self.journal.run_state()

    # The environments' side.

    async def register_env(self, registration: EnvRegistration) -> RegisteredEnv | None:
        """A new environment, or the place of one of the same name that has left. None: the trainer is not there yet."""
        if self.registration is None or not self._state.started:
            return None
        async with self._registering:  # two at once must not get one number
            env = self._place_of(registration)
            await self._put_environment(env)
        return env

    def _place_of(self, registration: EnvRegistration) -> RegisteredEnv:
        same_name = [env for env in self._environments.values() if env.registration.name == registration.name]
        live = {env.env_id for env in self.live_environments()}
        left = next((env for env in same_name if env.env_id not in live), None)
        return RegisteredEnv(
            env_id=left.env_id if left else len(self._environments),
            wandb_name=left.wandb_name if left else f"{registration.name}_{len(same_name)}",
            connected=True,
            registration=registration,
        )

    async def disconnect_env(self, env_id: int) -> bool:
        env = self._environments.get(env_id)
        if env is None:
            return False
        await self._put_environment(
            RegisteredEnv(env_id, env.wandb_name, connected=False, registration=env.registration)
        )
        return True

    async def _put_environment(self, env: RegisteredEnv) -> None:
        await self._write("environment", self.journal.put_environment, env)
        self._environments[env.env_id] = env
        self._seen_at[env.env_id] = self._clock()

    def live_environments(self) -> list[RegisteredEnv]:
        now = self._clock()
        return [
            env
            for env in self._environments.values()
            if env.connected and now - self._seen_at[env.env_id] <= ENV_SILENT_SECONDS
        ]

    def status_of_env(self, env_id: int) -> dict[str, float | int]:
        env = self._environments.get(env_id)
        if env is None:
            raise Refusal(404, "env_id", f"env_id {env_id} is not registered; POST /register-env first")
        self._seen_at[env_id] = self._clock()
        batch_size = self.registration.batch_size if self.registration else 0
        counts = self.journal.group_counts()
        return status_of_env(env, self.live_environments(), counts, batch_size, self._pace(counts))

    def buffered_sequences(self, env_id: int | None) -> int:
        counts = self.journal.group_counts()
        return sum(count.sequences for count in counts if count.state == "buffered" and count.env_id == env_id)

    async def add_groups(self, groups: Sequence[ReceivedGroup]) -> list[NewGroupState]:
        """Store groups. Senders that come during a commit share the next one: a slow disk costs latency, not rate."""
        sender = _Sender(groups, asyncio.get_running_loop().create_future())
        self._senders.append(sender)
        if self._commit is None or self._commit.done():
            self._commit = asyncio.create_task(self._commit_senders())
        return await sender.states

    async def _commit_senders(self) -> None:
        while self._senders:
            senders, self._senders = self._senders, []
            groups = [group for sender in senders for group in sender.groups]
            try:
                states = iter(await self._write("groups", self.journal.add_groups, groups, time.time()))
            except Exception as error:  # noqa: BLE001 -- each sender raises it in its own request
                for sender in senders:
                    sender.states.set_exception(error)
                continue
            for sender in senders:
                sender.states.set_result(list(islice(states, len(sender.groups))))
            self.received_groups += len(groups)
            self._arrival.set()
            self._arrival = asyncio.Event()

    # Both sides.

    @property
    def current_step(self) -> int:
        """The step that environments are told."""
        return self._pace(self.journal.group_counts()).current_step

    def _pace(self, counts: Sequence[GroupCount]) -> Pace:
        return pace(
            self.registration,
            self._state.progress,
            counts,
            over=self.over_reason() is not None,
            starving=self._starving,
        )

    def status(self) -> dict[str, int]:
        """The answer of `/status`: here `queue_size` counts groups of any size."""
        counts = self.journal.group_counts()
        queued = [count for count in counts if count.state == "queued"]
        groups, sequences = sum(count.groups for count in queued), sum(count.sequences for count in queued)
        current = self._pace(counts)
        typical_size = max(1, sequences // groups) if groups else 1
        return {"current_step": current.current_step, "queue_size": current.queue_size(sequences, typical_size)}

    def over_reason(self) -> str | None:
        return over_reason(self._state.progress, self.lease("trainer"))

    @property
    def run_state(self) -> RunState:
        return self._state

    def lease(self, role: Role) -> LeaseView:
        return view(role, self._leases.get(role), self._clock())

    async def renew_lease(self, role: Role, report: LeaseReport) -> None:
        """Only a changed state is written: heartbeats are many, and the next one comes within a second.

        It counts before it is written: who speaks is alive, also when the disk is full.
        """
        self._leases[role] = _lease(report, self._clock())
        if self._state.leases.get(role) != report:
            await self._write("lease", self.journal.record_lease, role, report)
            self._state = self.journal.run_state()

    async def add_metrics(self, report: MetricsReport) -> int:
        sequence: int = await self._write("metrics", self.journal.add_metrics, report, time.time())
        return sequence

    def unready(self) -> str | None:
        """Why the journal does not answer, or None. A failure lasts until the same kind of write succeeds."""
        return next(iter(self._failures.values()), None)

    async def _write(self, kind: str, write: Callable[..., Answer], *args: Any) -> Answer:
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._writer, write, *args)
        except JournalError as error:
            self._failures[kind] = str(error)
            raise
        self._failures.pop(kind, None)
        return answer


def _lease(report: LeaseReport, renewed_at: float) -> Lease:
    return Lease(report.state, report.reason, report.ttl_seconds, renewed_at)
