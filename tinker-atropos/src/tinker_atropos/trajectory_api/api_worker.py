"""The process that serves: journal, data port and ops port. Its parent (api_process.py) restarts it when it dies.

Run as `python -m tinker_atropos.trajectory_api.api_worker OPTIONS`, with the listening sockets inherited and a pipe on
stdin that closes when the parent is gone.
"""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import orjson
from prometheus_client import CollectorRegistry

from tinker_atropos.environments_path import below
from tinker_atropos.errors import ExitCode, RunError
from tinker_atropos.logs import configure_logging, log_format_of
from tinker_atropos.serving import ops_app, serve
from tinker_atropos.trajectory_api.routes.api_routes import trajectory_app
from tinker_atropos.trajectory_api.routes.ops import ServiceCollector, ops_status
from tinker_atropos.trajectory_api.service.trajectory_service import TrajectoryService
from tinker_atropos.trajectory_api.store.journal import Journal

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What the parent passes on. The sockets are file descriptors; `restarts` counts the restarts so far.

    `environment_grace` is in seconds; None if environments are not replaced. `path` is that of `environments_path.py`.
    """

    data: str
    max_journal_bytes: int
    data_socket: int
    ops_socket: int
    restarts: int
    environment_grace: int | None = None
    path: str = ""

    def to_argument(self) -> str:
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def of_argument(cls, argument: str) -> Self:
        return cls(**orjson.loads(argument))


async def run_worker(options: WorkerOptions) -> None:
    """Serve until SIGTERM, or until the parent's pipe closes. Raises JournalError if the journal cannot be opened."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_reader(sys.stdin, stop.set)  # nothing is ever written to it: readable means closed
    with _service(options) as service:
        registry = CollectorRegistry()
        registry.register(ServiceCollector(service, options.restarts))
        ops = ops_app(service.unready, lambda: ops_status(service, options.restarts), registry=registry)
        async with (
            serve(below(options.path, trajectory_app(service)), socket.socket(fileno=options.data_socket)),
            serve(ops, socket.socket(fileno=options.ops_socket)),
        ):
            await stop.wait()


@contextmanager
def _service(options: WorkerOptions) -> Iterator[TrajectoryService]:
    journal = Journal(Path(options.data), options.max_journal_bytes)
    service = TrajectoryService(journal, environment_grace=options.environment_grace)
    try:
        yield service
    finally:
        service.close()
        journal.close()


def main() -> None:
    sys.setswitchinterval(0.0005)  # the journal's thread waits for the interpreter lock after each statement
    configure_logging(log_format_of())
    try:
        asyncio.run(run_worker(WorkerOptions.of_argument(sys.argv[1])))
    except RunError as error:
        logger.error("%s", error)  # noqa: TRY400 -- the message is enough
        sys.exit(error.exit_code)
    sys.exit(ExitCode.DONE)


if __name__ == "__main__":
    main()
