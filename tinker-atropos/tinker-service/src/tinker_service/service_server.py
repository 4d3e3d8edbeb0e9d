"""The service behind a bound socket: loads the model, serves it, discards what is no longer needed."""

import asyncio
import gc
import logging
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from tinker_service.checkpoint_store import CheckpointStore
from tinker_service.downloads import DOWNLOADS, Downloads
from tinker_service.model.checkpoint_files import replace_text
from tinker_service.model.engine import Engine
from tinker_service.model.model_worker import AnswerSamples, Worker
from tinker_service.model.registry import Registry
from tinker_service.model.sampling.sample_jobs import SampleAnswer, SampleJob
from tinker_service.sdk.futures import Futures
from tinker_service.sdk.key_gate import KeyGate
from tinker_service.sdk.operations import Service
from tinker_service.sdk.sdk_routes import PROBES, service_app
from tinker_service.service_http import serve
from tinker_service.service_metrics import Metrics

TIDY_SECONDS = 10.0
SWEEP_SECONDS = 600.0

log = logging.getLogger(__name__)


async def serve_model(
    listener: socket.socket,
    *,
    key: str,
    name: str,
    folder: Path,
    data: Path,
    device: str,
    dtype: str,
    max_disk_bytes: int | None,
    sampling_bytes: int,
    threads: int | None,
    port_file: Path | None,
    idle_exit: float,
) -> None:
    """Serve until SIGTERM, SIGINT or `idle_exit`."""
    engine = Engine(name, folder, device, dtype, sampling_bytes)
    engine.use_threads(threads)
    store = CheckpointStore(data, max_disk_bytes)
    store.sweep()
    metrics, registry = Metrics(), Registry()
    batch = engine.new_batch()
    worker = Worker(batch, _counted(engine, metrics), metrics.count_step)
    metrics.observe_kept(worker, batch, registry, store)
    service = Service(engine, worker, store, registry, metrics)
    futures = Futures()
    app = service_app(service, futures, Downloads(store, key))
    gate = KeyGate(app, key, probes=PROBES, signed_prefix=DOWNLOADS, observe=metrics.count_request)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    gc.freeze()  # no collection needs to look at torch and the model again while a client waits
    async with serve(gate, listener) as port:
        log.info("the Tinker service listens on http://%s:%d", listener.getsockname()[0], port)
        if port_file is not None:
            replace_text(port_file, f"{port}\n")  # whoever waits for the file never sees half of it
        tidying = asyncio.create_task(_tidy(service, futures, gate, idle_exit, stopped), name="tidy")
        await stopped.wait()
        tidying.cancel()
    service.worker.stop()


def _counted(engine: Engine, metrics: Metrics) -> AnswerSamples:
    def answer(jobs: Sequence[SampleJob]) -> Sequence[SampleAnswer]:
        metrics.count_samples(jobs)
        return engine.answer(jobs)

    return answer


async def _tidy(service: Service, futures: Futures, gate: KeyGate, idle_exit: float, stopped: asyncio.Event) -> None:
    """Discard what is no longer needed; stop when idle for long enough."""
    swept = time.monotonic()
    while True:
        await asyncio.sleep(min(TIDY_SECONDS, idle_exit / 4) if idle_exit else TIDY_SECONDS)
        now = time.monotonic()
        futures.forget_expired(now)
        service.registry.tidy(now)
        service.registry.recordings.forget_expired(now)
        if now - swept > SWEEP_SECONDS:
            swept = now
            service.submit(service.store.sweep)
        if idle_exit and gate.idle_seconds >= idle_exit:
            log.info("no request for %.0f s: the Tinker service ends", idle_exit)
            stopped.set()
