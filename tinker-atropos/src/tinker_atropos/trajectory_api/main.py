"""The api process: journal, data port, ops port, until SIGTERM."""

import asyncio
import logging
import signal
from pathlib import Path

from prometheus_client import CollectorRegistry

from tinker_atropos.serving import bind, ops_app, serve
from tinker_atropos.settings import Settings
from tinker_atropos.trajectory_api.app import trajectory_app
from tinker_atropos.trajectory_api.journal import Journal
from tinker_atropos.trajectory_api.ops import ServiceCollector, ops_status
from tinker_atropos.trajectory_api.service import TrajectoryService

DEFAULT_MAX_JOURNAL_BYTES = 2 * 2**30

logger = logging.getLogger(__name__)


async def run_api(settings: Settings, data: Path, max_journal_bytes: int = DEFAULT_MAX_JOURNAL_BYTES) -> None:
    """Serve until SIGTERM or SIGINT. Raises InternalError for a port in use or a journal that does not open."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    address = settings.api_address
    listener = bind(address.host, address.port, "RL_API_URL")
    ops_listener = bind(settings.ops_host, settings.ops_port, "RL_OPS_PORT")
    journal = Journal(data, max_journal_bytes)
    service = TrajectoryService(journal)
    registry = CollectorRegistry()
    registry.register(ServiceCollector(service))
    ops = ops_app(service.unready, lambda: ops_status(service), registry=registry)
    try:
        async with serve(trajectory_app(service), listener) as port, serve(ops, ops_listener) as ops_port:
            logger.info(
                "trajectory API on %s:%d, ops on port %d, journal %s", address.host, port, ops_port, journal.path
            )
            await stop.wait()
    finally:
        service.close()
        journal.close()
