"""What the trajectory API does, without HTTP: the journal's state, the clock, and the requests that wait.

The trainer waits for a batch (at most as long as it asked for), and gets the same one again for the same step. While
it lacks groups, environments are never paused, and what is kept for replay is evicted to make room for what they send.
A POST waits for its commit, and for room if the journal is full (`arrivals.py`). What is kept until when, and how it is
counted: `run_record.py`, `batches.py`, `books.py`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tinker_atropos.disk_room import is_full
from tinker_atropos.running_time import running_seconds
from tinker_atropos.trajectory_api.messages.bodies import ApiRefusal
from tinker_atropos.trajectory_api.messages.requests import (
    MAX_ENVIRONMENTS,
    DropRequest,
    EnvRegistration,
    GroupCount,
    ItemsRequest,
    LeaseReport,
    MetricsReport,
    PostedGroups,
    ProgressReport,
    RegisteredEnv,
    StepBatch,
    TrainerRegistration,
)
from tinker_atropos.trajectory_api.service.held_leases import HeldLeases, LeaseView, Role, lease_key
from tinker_atropos.trajectory_api.service.pace import Pace, over_reason, pace, status_of_env
from tinker_atropos.trajectory_api.store import batches, books, items, run_record
from tinker_atropos.trajectory_api.store.arrivals import HOLD_SECONDS, Intake, Stored, add_deliveries
from tinker_atropos.trajectory_api.store.journal import DiskFullError, Journal, JournalError

SILENT_SECONDS = 15.0
"""An environment that has not requested its status for this long has left (BaseEnv does so ten times a second)."""


ASKED_SECONDS = 15.0
"""For so long an environment that has asked for items is live without a heartbeat."""


class Roster:
    """`by_index`: an environment's index identifies it (they are started by number, and replaced).

    Otherwise a new one replaces one of the same name that has left.
    """

    def __init__(self, known: Iterable[RegisteredEnv], clock: Callable[[], float], *, by_index: bool = False) -> None:
        self._clock = clock
        self._by_index = by_index
        self._environments = {env.env_id: env for env in known}
        self._seen_at = dict.fromkeys(self._environments, clock())

    def place_of(self, registration: EnvRegistration) -> RegisteredEnv:
        """The number and the name for a registration. Raises ApiRefusal when there are too many."""
        same_name = [env for env in self._environments.values() if env.registration.name == registration.name]
        left = next((env for env in same_name if self._makes_place(env, registration)), None)
        if left is not None:
            return replace(left, connected=True, registration=registration)
        if len(self._environments) >= MAX_ENVIRONMENTS:
            raise ApiRefusal(409, "environments", f"{MAX_ENVIRONMENTS} environments have registered: no more can join")
        return RegisteredEnv(
            env_id=len(self._environments),
            wandb_name=f"{registration.name}_{len(same_name)}",
            connected=True,
            registration=registration,
        )

    def _makes_place(self, env: RegisteredEnv, registration: EnvRegistration) -> bool:
        if self._by_index and registration.index is not None:
            return env.registration.index == registration.index
        return not self.is_live(env)

    def put(self, env: RegisteredEnv) -> None:
        self._environments[env.env_id] = env
        self._seen_at[env.env_id] = self._clock()

    def get(self, env_id: int) -> RegisteredEnv | None:
        return self._environments.get(env_id)

    def seen(self, env_id: int) -> RegisteredEnv:
        """Mark an environment as present, and return it. Raises ApiRefusal for one that never registered."""
        env = self._environments.get(env_id)
        if env is None:
            raise ApiRefusal(404, "env_id", f"env_id {env_id} is not registered; POST /register-env first")
        self._seen_at[env_id] = self._clock()
        return env

    def is_live(self, env: RegisteredEnv) -> bool:
        return env.connected and self._clock() - self._seen_at[env.env_id] <= SILENT_SECONDS

    def live(self) -> list[RegisteredEnv]:
        return [env for env in self._environments.values() if self.is_live(env)]


Answer = TypeVar("Answer")


class TrajectoryService:
    """One run's trajectories. Only what may be lost is in memory: clocks and waiting requests.

    `run_state` is what the journal holds. `environment_grace`: how many seconds may pass without a live environment;
    None if those that die are not replaced.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Callable[[], float] = running_seconds,
        hold_seconds: float = HOLD_SECONDS,
        environment_grace: float | None = None,
    ) -> None:
        self.journal = journal
        self._clock = clock
        self._writer = ThreadPoolExecutor(1, "journal")
        self.run_state = journal.read(run_record.run_state)
        self.roster = Roster(journal.read(run_record.environments), clock, by_index=environment_grace is not None)
        self.leases = HeldLeases(self.run_state.leases, clock, environment_grace or 0.0)
        self._registering = asyncio.Lock()
        self.intake = Intake(self._store, journal.full_sentence(), hold_seconds)
        self._missing = 0  # rollouts that the waiting trainer lacks
        self._failures: dict[str, JournalError] = {}
        self._asked_at: dict[str, float] = {}
        self._counts: tuple[int, list[GroupCount]] = (-1, [])

    def close(self) -> None:
        self._writer.shutdown()

    # The trainer's side.

    @property
    def registration(self) -> TrainerRegistration | None:
        return self.run_state.registration

    async def register(self, registration: TrainerRegistration) -> None:
        """A second registration is a restarted trainer: how the previous one's environment ended no longer matters.

        Raises ApiRefusal for `items` that nobody can continue from.
        """
        try:
            items.DataPosition.parse(registration.items or items.BEGINNING)
        except ValueError as error:
            raise ApiRefusal(
                422, "items", f"items is {error}; leave it out, and the data begins with its first item"
            ) from None
        ended = [] if self.registration is None else self.leases.ended()
        await self._change("register", run_record.register, registration, ended)
        self.leases.forget(ended)
        self._missing = 0
        self.intake.room_made()

    async def take_batch(self, step: int | None, wait_seconds: float, gone: Callable[[], Awaitable[bool]]) -> StepBatch:
        """Batch `step`, waited for until it is full. A client that is `gone` gets none.

        Without a step it is the next one, and the request means that all previous ones are trained. Raises ApiRefusal
        for a step that a checkpoint covers.
        """
        registration = self.registration
        if registration is None:
            return StepBatch(missing=1)
        self._check_kept(step)
        if not self.run_state.started:
            await self._change("start", run_record.start)
        if step is None:
            await self._change("finish", run_record.finish_delivered)
        deadline = self._clock() + wait_seconds
        batch = StepBatch(missing=registration.batch_size)
        while not await gone():
            arrival = self.intake.arrival
            batch = await self._take_batch_now(step, registration)
            if not batch.missing or not await self._arrive(batch.missing, arrival, deadline):
                return batch
        return batch

    async def _arrive(self, missing: int, arrival: asyncio.Event, deadline: float) -> bool:
        """Wait until the queue has grown and may hold what is missing. False when that takes too long."""
        while (remaining := deadline - self._clock()) > 0:
            try:
                await asyncio.wait_for(arrival.wait(), remaining)
            except TimeoutError:
                return False
            arrival = self.intake.arrival
            if sum(count.rollouts for count in self.group_counts() if count.state == "queued") >= missing:
                return True
        return False

    def _check_kept(self, step: int | None) -> None:
        covered = self.run_state.covered_step
        if step is not None and step < covered:
            raise ApiRefusal(
                409,
                "step",
                f"step is {step}, but a checkpoint covers the batches before step {covered} and they are no longer "
                "kept; ask for that step or a later one",
            )

    async def _take_batch_now(self, step: int | None, registration: TrainerRegistration) -> StepBatch:
        minimum_shares = {
            env.env_id: env.registration.min_batch_allocation
            for env in self.roster.live()
            if env.registration.min_batch_allocation is not None
        }
        size = registration.batch_size
        self._missing = 0  # once the batch is written and not yet here, nothing of it is missing: no group too many
        if step is None:
            batch = await self._write("take_batch", run_record.take_next_batch, size, minimum_shares)
        else:
            batch = await self._write("take_batch", batches.take_batch, step, size, minimum_shares)
        past_the_end = step is None and self.run_state.progress.steps_trained >= registration.num_steps
        self._missing = 0 if past_the_end else batch.missing
        if batch.missing:
            self.intake.room_made()  # now including what is kept for replay
        return batch

    async def drop(self, request: DropRequest) -> int:
        """Returns how many of the groups still existed."""
        dropped = await self._write("drop", batches.drop_groups, request.ids, request.reason)
        self.intake.room_made()
        return dropped

    async def record_progress(self, report: ProgressReport) -> None:
        await self._change("progress", run_record.record_progress, report)
        self.intake.room_made()

    # The environments' side.

    async def register_env(self, registration: EnvRegistration) -> RegisteredEnv | None:
        """A new environment, or one of the same name that has left. None: the trainer has not started yet.

        An attempt that begins with all steps trained requests no batch, but its weights are to be evaluated.
        """
        if self.registration is None or not (self.run_state.started or self.run_state.progress.training_done):
            return None
        async with self._registering:  # two at once must not get the same number
            env = self.roster.place_of(registration)
            await self._put_environment(env)
        return env

    async def disconnect_env(self, env_id: int) -> bool:
        env = self.roster.get(env_id)
        if env is None:
            return False
        await self._put_environment(replace(env, connected=False))
        return True

    async def _put_environment(self, env: RegisteredEnv) -> None:
        await self._write("environment", run_record.put_environment, env)
        self.roster.put(env)

    def status_of_env(self, env_id: int) -> dict[str, float | int | None]:
        env = self.roster.seen(env_id)
        batch_size = self.registration.batch_size if self.registration else 0
        counts = self.group_counts()
        return status_of_env(env, self.roster.live(), counts, batch_size, self._pace(counts))

    def buffered_rollouts(self, env_id: int | None) -> int:
        counts = self.group_counts()
        return sum(count.rollouts for count in counts if count.state == "buffered" and count.env_id == env_id)

    async def deal(self, request: ItemsRequest) -> list[int]:
        """The positions of the next items for an environment's process; none before a trainer has said where the run
        is. One that asks is live, even if its next heartbeat is not here yet.
        """
        now = self._clock()
        self._asked_at[request.id] = now
        asked = {holder for holder, at in self._asked_at.items() if now - at <= ASKED_SECONDS}
        count = 0 if self.registration is None else request.count
        return await self._write("items", items.deal, request, count, self.leases.live_ids() | asked)

    async def data_position(self, step: int) -> str:
        """What a checkpoint after `step` steps keeps of the run's items."""
        return await self._write("items", items.position_at, step)

    async def _store(self, deliveries: Sequence[PostedGroups]) -> list[Stored | None]:
        add = partial(add_deliveries, now=time.time(), max_bytes=self.journal.max_bytes, evict_replay=self._missing > 0)
        return await self._write("groups", add, deliveries)

    # Both sides.

    def group_counts(self) -> list[GroupCount]:
        """Groups by state, environment and size. Cached until the next commit: environments ask often."""
        commits = self.journal.commits
        if self._counts[0] != commits:
            self._counts = (commits, self.journal.read(books.group_counts))
        return self._counts[1]

    @property
    def current_step(self) -> int:
        """The step that environments see."""
        return self._pace(self.group_counts()).current_step

    def _pace(self, counts: Sequence[GroupCount]) -> Pace:
        return pace(
            self.registration,
            self.run_state.progress,
            counts,
            over=self.over_reason() is not None,
            missing=self._missing,
        )

    def status(self) -> dict[str, int]:
        """The response to `/status`: here `queue_size` counts groups of any size."""
        counts = self.group_counts()
        queued = [count for count in counts if count.state == "queued"]
        groups, rollouts = sum(count.groups for count in queued), sum(count.rollouts for count in queued)
        current = self._pace(counts)
        typical_size = max(1, rollouts // groups) if groups else 1
        return {"current_step": current.current_step, "queue_size": current.queue_size(rollouts, typical_size)}

    def over_reason(self) -> str | None:
        return over_reason(self.run_state.progress, self.leases.trainer())

    def lease(self, role: Role) -> LeaseView:
        """What the other side sees of this one."""
        return self.leases.trainer() if role == "trainer" else self.leases.environments(over=bool(self.over_reason()))

    @property
    def environment_state(self) -> str | None:
        """What an environment that starts now goes on from: the last one's state, else the checkpoint's."""
        resumed = self.registration.environment_state if self.registration else None
        return self.leases.environment_state or resumed

    async def renew_lease(self, role: Role, report: LeaseReport) -> None:
        """Only a changed state is written: heartbeats are frequent, and the next one comes within a second.

        It counts before it is written: a process that sends heartbeats is alive, even if the disk is full.
        """
        forgotten, key = self.leases.renew(role, report), lease_key(role, report.id)
        if self.run_state.leases.get(key) != report:
            await self._change("lease", run_record.record_lease, key, report, forgotten)

    async def add_metrics(self, report: MetricsReport) -> int:
        sequence = await self._write("metrics", run_record.add_metrics, report, time.time())
        if report.source == run_record.EVALUATION:
            self.run_state = self.journal.read(run_record.run_state)
        return sequence

    def unready(self) -> str | None:
        """Why the journal is not available, or None. A failure lasts until the same kind of write succeeds."""
        return next(map(str, self._failures.values()), None)

    def no_space(self) -> str | None:
        """Why writes wait for room on the disk; None: there is some, though nothing was written since."""
        full = next((str(error) for error in self._failures.values() if isinstance(error, DiskFullError)), None)
        return full if full and is_full(self.journal.path.parent) else None

    async def _change(self, kind: str, change: Callable[..., None], *args: object) -> None:
        await self._write(kind, change, *args)
        self.run_state = self.journal.read(run_record.run_state)

    async def _write(self, kind: str, change: Callable[..., Answer], *args: object) -> Answer:
        """Make a change to the journal, in its thread."""
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._writer, self.journal.write, change, *args)
        except JournalError as error:
            self._failures[kind] = error
            raise
        self._failures.pop(kind, None)
        return answer
