"""One operator works, others stand by: how the process uses its lease."""

import asyncio
import logging
import os
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Final, Self, TypeVar

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.connection import in_cluster, own_namespace
from rl_operator.cluster.api_server.leader_election import LeaderElector, LeaseLostError, LeaseTimes
from rl_operator.operator_settings import OperatorSettings

log = logging.getLogger(__name__)

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
