"""Which of several operators works: the holder of one coordination.k8s.io Lease.

client-go's protocol (k8s.io/client-go/tools/leaderelection), so that its rules hold: every update names the
resourceVersion that it was based on, and whether a lease has expired is measured by the reader's own monotonic clock,
from when it first saw the lease in its current state. Clocks of different nodes are never compared.

`LeaseThread` is how the process uses it: one operator works, others stand by.
"""

import asyncio
import logging
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, Self, TypeVar

from rl_operator.api.kubernetes_objects import LeaseObject, LeaseSpec
from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.clock import micro_time
from rl_operator.cluster.api_server.connection import in_cluster, own_namespace
from rl_operator.cluster.api_server.resources import LEASES
from rl_operator.operator_errors import ConflictError, ForbiddenError, GoneError, OperatorError
from rl_operator.operator_settings import OperatorSettings

log = logging.getLogger(__name__)


class LeaseLostError(OperatorError):
    """Another process may work now: this process must end at once."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds. All follow from `duration`: how long after the last renewal no other process may take the lease."""

    duration: int = 12

    @property
    def renew(self) -> float:
        return self.duration / 4

    @property
    def patience(self) -> float:
        """How long a holder keeps working without a renewal: it must be gone before others may take over."""
        return self.duration * 5 / 6

    @property
    def call(self) -> float:
        """The timeout of one call: several must fit into `patience`."""
        return self.duration / 4

    @property
    def retry(self) -> float:
        return self.duration / 12

    @property
    def look(self) -> float:
        """How often a waiting process checks the lease: a released lease may stay unused for this long."""
        return self.duration / 8


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease's spec. Holder and `acquired` together identify one leadership: a restarted holder acquires again."""

    holder: str = ""
    duration: int = 0
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0

    @classmethod
    def of(cls, document: LeaseObject) -> "LeaseRecord":
        spec: LeaseSpec = document.get("spec") or {}
        return cls(
            spec.get("holderIdentity") or "",
            spec.get("leaseDurationSeconds") or 0,
            spec.get("acquireTime") or "",
            spec.get("renewTime") or "",
            spec.get("leaseTransitions") or 0,
        )

    @property
    def spec(self) -> LeaseSpec:
        """In the API's form: without a holder the field is missing."""
        spec: LeaseSpec = {
            "acquireTime": self.acquired,
            "renewTime": self.renewed,
            "leaseDurationSeconds": self.duration,
            "leaseTransitions": self.transitions,
        }
        return spec | {"holderIdentity": self.holder} if self.holder else spec


class LeaderElector:
    """`acquire`, then `keep` while the work lasts, then `release`. `identity` must be unique to this process."""

    def __init__(
        self,
        client: ClusterClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        times: LeaseTimes = LeaseTimes(),
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._times = times
        self._clock = clock
        self._document: LeaseObject = {}
        self._seen = LeaseRecord()
        self._seen_at = float("-inf")
        self._renewed_at = float("-inf")

    def __str__(self) -> str:
        return f"lease {self._namespace}/{self._name}"

    @property
    def leads(self) -> bool:
        """Whether the lease is ours and cannot have expired yet."""
        return time.monotonic() < self._renewed_at + self._times.duration

    # --- before -------------------------------------------------------------------------------------------------
    async def acquire(self) -> None:
        """Wait until the lease is ours. Raises ForbiddenError if the API server refuses for longer than a moment."""
        refused_since: float | None = None
        while True:
            try:
                async with asyncio.timeout(self._times.call):
                    if await self._take():
                        return
                refused_since = None
            except ForbiddenError as error:
                # An API server that has just started refuses what it will allow in a second.
                refused_since = refused_since or time.monotonic()
                if time.monotonic() > refused_since + self._times.patience:
                    raise ForbiddenError(self._right_missing(error)) from error
            except (OperatorError, TimeoutError) as error:
                log.debug("%s: %s", self, error)  # another process was faster, or the API server is away: no harm done
            await asyncio.sleep(self._times.look * random.uniform(0.8, 1.2))  # noqa: S311 -- jitter, not a secret

    async def _take(self) -> bool:
        """Check the lease, and take it if no process holds it anymore."""
        sent_at = time.monotonic()
        try:
            self._document = await self._client.get(LEASES.path(self._namespace, self._name))
        except GoneError:
            self._keep_answer(await self._create(self._ours(transitions=0)), sent_at)
            return True
        found = LeaseRecord.of(self._document)
        if found != self._seen:
            self._seen, self._seen_at = found, time.monotonic()
        expired = time.monotonic() > self._seen_at + found.duration
        if found.holder not in ("", self._identity) and not expired:
            return False
        changed = found.holder != self._identity
        sent_at = time.monotonic()
        self._keep_answer(await self._update(self._ours(found.transitions + changed)), sent_at)
        return True

    def _ours(self, transitions: int) -> LeaseRecord:
        now = micro_time(self._clock())
        return LeaseRecord(self._identity, self._times.duration, now, now, transitions)

    def _right_missing(self, error: ForbiddenError) -> str:
        return (
            f"{self}: the operator needs the verbs get, create and update for leases of coordination.k8s.io in "
            f"namespace {self._namespace} (examples/operator.yaml gives them; --lease-name '' does without): {error}"
        )

    # --- while holding it ---------------------------------------------------------------------------------------
    async def keep(self) -> None:
        """Renew forever. Raises LeaseLostError if another process has the lease, or may soon have it."""
        while True:
            await asyncio.sleep(self._times.renew)
            await self._renew()

    async def _renew(self) -> None:
        """Renew once, with retries; a process that was suspended for too long does not even try."""
        deadline = self._renewed_at + self._times.patience
        cause: object = None
        while (left := deadline - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(min(self._times.call, left)):
                    return await self._renew_once()
            except LeaseLostError:
                raise
            except TimeoutError:
                if cause is None or left >= self._times.call:  # one that was cut short hides no other's answer
                    cause = "the API server did not answer in time"
            except OperatorError as error:
                cause = error
            await asyncio.sleep(self._times.retry)
        why = cause or "this process stood still"
        raise LeaseLostError(f"{self} was not renewed for {self._times.patience:.0f} s: {why}")

    async def _renew_once(self) -> None:
        sent_at = time.monotonic()
        renewed = replace(self._seen, renewed=micro_time(self._clock()))
        try:
            answer = await self._update(renewed)
        except GoneError:  # deleted by a user
            answer = await self._create(renewed)
        except ConflictError:
            await self._require_ours()
            raise
        self._keep_answer(answer, sent_at)

    async def _require_ours(self) -> None:
        """Someone wrote: a user who set a label, we ourselves in a call whose response was lost, or the next holder."""
        live = await self._client.get(LEASES.path(self._namespace, self._name))
        found = LeaseRecord.of(live)
        if (found.holder, found.acquired) != (self._seen.holder, self._seen.acquired):
            raise LeaseLostError(f"{self} is held by {found.holder or 'nobody'} now")
        self._document = live

    # --- after --------------------------------------------------------------------------------------------------
    async def release(self) -> None:
        """Release the lease, so that no process has to wait for it to expire. Best effort; never fails."""
        if not self.leads:
            return
        self._renewed_at = float("-inf")
        try:
            async with asyncio.timeout(self._times.call):
                await self._give_back()
        except (OperatorError, TimeoutError) as error:
            log.info("%s was not given back and ends in %d s: %s", self, self._times.duration, error)

    async def _give_back(self) -> None:
        """A renewal that was canceled under way may have arrived all the same."""
        nobodys = replace(self._seen, holder="", duration=1, renewed=micro_time(self._clock()))
        try:
            await self._update(nobodys)
        except ConflictError:
            await self._require_ours()
            await self._update(nobodys)

    # --- calls --------------------------------------------------------------------------------------------------
    async def _create(self, record: LeaseRecord) -> LeaseObject:
        head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        metadata = {"name": self._name, "namespace": self._namespace}
        return await self._client.create(
            LEASES.path(self._namespace), {**head, "metadata": metadata, "spec": record.spec}
        )

    async def _update(self, record: LeaseRecord) -> LeaseObject:
        """Against the resourceVersion that was last read or written."""
        body = {**self._document, "spec": record.spec}
        return await self._client.update(LEASES.path(self._namespace, self._name), body)

    def _keep_answer(self, answer: LeaseObject, sent_at: float) -> None:
        """The lease is ours from when the call was sent: others count from later."""
        self._document, self._seen, self._renewed_at = answer, LeaseRecord.of(answer), sent_at


Result = TypeVar("Result")

LEASE_LOST: Final = 4
"""The exit code of a process that lost its lease."""


def elector_of(settings: OperatorSettings, client: ClusterClient) -> LeaderElector:
    """For a process that has a `lease_name`."""
    namespace = settings.operator_namespace or own_namespace()
    times = LeaseTimes(settings.lease_seconds)
    return LeaderElector(client, namespace, settings.lease_name, settings.identity or _identity(), times=times)


def _identity() -> str:
    """A restarted container keeps its pod's hostname, and so takes over its own lease at once. Elsewhere several
    processes share a hostname.
    """
    hostname = socket.gethostname()
    return hostname if in_cluster() else f"{hostname}-{secrets.token_hex(4)}"


class LeaseThread:
    """An elector and its connection, in a thread and a loop of their own: whatever holds up the main loop, the lease is
    renewed. A main loop that never goes on is noticed by the liveness probe, which it answers.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        connect: Callable[[], Awaitable[ClusterClient]],
        lost: Callable[[], None] | None = None,
    ) -> None:
        """`lost` is called in the thread, once; by default it ends the process."""
        self._settings = settings
        self._connect = connect
        self._lost = lost or partial(os._exit, LEASE_LOST)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lease", daemon=True)
        self._turn = asyncio.Lock()
        self._client: ClusterClient | None = None
        self._elector: LeaderElector | None = None

    def __str__(self) -> str:
        return str(self._elector)

    @property
    def leads(self) -> bool:
        """Whether the lease is ours and cannot have expired yet."""
        return self._elector is not None and self._elector.leads

    async def __aenter__(self) -> Self:
        self._thread.start()
        try:
            await self._there(self._open())
        except BaseException:
            self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._there(self._client.__aexit__())
        self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def acquire(self) -> None:
        """Wait until the lease is ours. Raises ForbiddenError, as `LeaderElector.acquire` does."""
        await self._there(self._opened.acquire())

    async def keep(self) -> None:
        """Renew it until cancelled. If it is lost, this process ends on the spot: a cleanup would mean more writes,
        which are no longer allowed.
        """
        await self._there(self._keep())

    async def release(self) -> None:
        """After `keep`: release the lease, so that no process has to wait for it to expire. Never fails."""
        await self._there(self._release())

    @property
    def _opened(self) -> LeaderElector:
        assert self._elector is not None, "enter the LeaseThread first"
        return self._elector

    async def _there(self, work: Coroutine[object, object, Result]) -> Result:
        """Run it in the thread's loop; a cancellation reaches it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    # --- in the thread's loop -----------------------------------------------------------------------------------
    async def _open(self) -> None:
        self._client = await self._connect()
        self._elector = elector_of(self._settings, self._client)

    async def _keep(self) -> None:
        async with self._turn:
            try:
                await self._opened.keep()
            except LeaseLostError as error:
                log.critical("%s: this process ends at once", error)
                self._lost()

    async def _release(self) -> None:
        async with self._turn:  # a renewal that was cancelled has ended
            await self._opened.release()


async def lead(lease: LeaseThread | None, begin: Callable[[], None]) -> None:
    """Wait for the lease, let the work begin, and keep the lease. Ends only by cancellation."""
    if lease is None:
        begin()
        return
    log.info("standing by for %s", lease)
    await lease.acquire()
    begin()
    await lease.keep()
