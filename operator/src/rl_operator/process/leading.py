"""One operator works, others stand by: how the process uses its lease."""

import logging
import os
import secrets
import socket
from collections.abc import Callable
from typing import Final

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.cluster.api_server.connection import in_cluster, own_namespace
from rl_operator.cluster.api_server.lease import LeaderElector, LeaseLostError, LeaseTimes
from rl_operator.settings import OperatorSettings

log = logging.getLogger(__name__)

LEASE_LOST: Final = 4
"""The exit code of a process that lost its lease."""


def elector_of(settings: OperatorSettings, client: ClusterClient) -> LeaderElector | None:
    """None: no lease is wanted, this process is the only one."""
    if not settings.lease_name:
        return None
    namespace = settings.operator_namespace or own_namespace()
    times = LeaseTimes(settings.lease_seconds)
    return LeaderElector(client, namespace, settings.lease_name, settings.identity or _identity(), times=times)


def _identity() -> str:
    """A restarted container keeps its pod's hostname, and so takes over its own lease at once. Elsewhere several
    processes share a hostname.
    """
    hostname = socket.gethostname()
    return hostname if in_cluster() else f"{hostname}-{secrets.token_hex(4)}"


async def lead(elector: LeaderElector | None, begin: Callable[[], None]) -> None:
    """Wait for the lease, let the work begin, and keep the lease. Ends only by cancellation.

    A lost lease ends the process on the spot: a cleanup would mean more writes, which are no longer allowed.
    """
    if elector is None:
        begin()
        return
    log.info("standing by for %s", elector)
    await elector.acquire()
    begin()
    try:
        await elector.keep()
    except LeaseLostError as error:
        log.critical("%s: this process ends at once", error)
        os._exit(LEASE_LOST)
