"""The process that serves: journal, data port and ops port. Its parent (api_process.py) restarts it when it dies.

Run as `python -m tinker_atropos.trajectory_api.api_worker OPTIONS`, with the listening sockets inherited and a pipe on
stdin that closes when the parent is gone.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rl_contract.logs import configure_logging, log_format_of
from rl_contract.processes import ExitCode
from tinker_atropos.errors import RunError
from tinker_atropos.running_time import run
from tinker_atropos.serving import below, ops_app, serve
from tinker_atropos.trajectory_api.api_routes import trajectory_app
from tinker_atropos.trajectory_api.messages.requests import Books
from tinker_atropos.trajectory_api.service.held_leases import PEERS
from tinker_atropos.trajectory_api.service.trajectory_service import TrajectoryService
from tinker_atropos.trajectory_api.store.books import kept_batches, oldest_queued_at, read_books
from tinker_atropos.trajectory_api.store.journal import Journal, used_bytes
from tinker_atropos.trajectory_api.store.run_record import environments

HELD_STATES: Final = ("buffered", "queued", "delivered")


def ops_status(service: TrajectoryService, restarts: int) -> dict[str, object]:
    """`GET /status` of the ops port."""
    run = service.run_state
    live = {env.env_id for env in service.roster.live()}
    books = service.journal.read(read_books)
    return {
        "registered": run.registration is not None,
        "started": run.started,
        "step": run.progress.steps_trained,
        "totalSteps": run.registration.num_steps if run.registration else None,
        "runOver": service.over_reason(),
        "queue": {state: {unit: entries[state] for unit, entries in books.items()} for state in HELD_STATES},
        "oldestQueuedSeconds": _oldest_queued_seconds(service),
        "keptBatches": {"fromStep": run.covered_step, "batches": service.journal.read(kept_batches)},
        "environments": [
            {"envId": env.env_id, "name": env.wandb_name, "live": env.env_id in live}
            for env in service.journal.read(environments)
        ],
        "leases": {role: service.lease(role).to_wire() for role in PEERS},
        "environmentLeases": list(service.leases.to_wire()),
        "books": books,
        "heldPosts": service.intake.held,
        "worker": {"pid": os.getpid(), "restarts": restarts},
        "journal": {"bytes": service.journal.read(used_bytes), "error": service.unready()},
    }


def _oldest_queued_seconds(service: TrajectoryService) -> float | None:
    received_at = service.journal.read(oldest_queued_at)
    return None if received_at is None else max(0.0, time.time() - received_at)


class ServiceCollector(Collector):
    """Prometheus metrics, read from the service when scraped."""

    def __init__(self, service: TrajectoryService, restarts: int) -> None:
        self._service = service
        self._restarts = restarts

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        service = self._service
        for unit, books in service.journal.read(read_books).items():
            yield from _of_books(unit, books)
        yield CounterMetricFamily("rl_api_worker_restarts", "Times the worker was started again.", value=self._restarts)
        gauges = {
            "oldest_queued_seconds": ("How long the oldest queued group waits.", _oldest_queued_seconds(service) or 0),
            "kept_batches": ("Trained batches that can be replayed.", service.journal.read(kept_batches)),
            "held_posts": ("POSTs that wait for room in the journal.", service.intake.held),
            "step": ("Steps trained.", service.run_state.progress.steps_trained),
            "journal_bytes": ("Bytes in use in the journal.", service.journal.read(used_bytes)),
            "journal_failing": ("1 while the journal refuses a kind of write.", service.unready() is not None),
        }
        for name, (meaning, value) in gauges.items():
            yield GaugeMetricFamily(f"rl_api_{name}", meaning, value=float(value))


def _of_books(unit: str, books: Books) -> Iterator[Metric]:
    """`unit` is groups or rollouts. received = buffered + queued + delivered + trained + dropped."""
    name = f"rl_api_{unit}"
    held = GaugeMetricFamily(name, f"{unit.title()} in the journal, by state.", labels=["state"])
    for state in HELD_STATES:
        held.add_metric([state], books[state])
    yield held
    yield CounterMetricFamily(f"{name}_received", f"{unit.title()} stored, each once.", value=books["received"])
    yield CounterMetricFamily(f"{name}_duplicates", f"{unit.title()} sent again.", value=books["duplicates"])
    yield GaugeMetricFamily(f"{name}_trained", f"{unit.title()} trained, each once.", value=books["trained"])
    yield CounterMetricFamily(
        f"{name}_replay_evicted",
        f"{unit.title()} trained, whose content made room before a checkpoint covered them.",
        value=books["replay_evicted"],
    )
    yield _by_reason(f"{name}_refused", f"{unit.title()} refused for good.", books["refused"])
    yield _by_reason(f"{name}_dropped", f"{unit.title()} stored, and never to be trained.", books["dropped"])


def _by_reason(name: str, meaning: str, reasons: Mapping[str, int]) -> Metric:
    counter = CounterMetricFamily(name, meaning, labels=["reason"])
    for reason, amount in reasons.items():
        counter.add_metric([reason], amount)
    return counter


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What the parent passes on. The sockets are file descriptors; `restarts` counts the restarts so far.

    `environment_grace` is in seconds; None if environments are not replaced. `path` is that of `serving.py`.
    """

    data: str
    max_journal_bytes: int
    data_socket: int
    ops_socket: int
    restarts: int
    environment_grace: int | None = None
    path: str = ""


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
        run(run_worker(WorkerOptions(**orjson.loads(sys.argv[1]))))
    except RunError as error:
        logger.error("%s", error)  # noqa: TRY400 -- the message is enough
        sys.exit(error.exit_code)
    sys.exit(ExitCode.DONE)


if __name__ == "__main__":
    main()
