"""The process `tinker-atropos tinker-service`."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from tinker_atropos.errors import ConfigError
from tinker_atropos.serving import bind, serve
from tinker_atropos.tinker_service.access import KEY_PREFIX, Gate
from tinker_atropos.tinker_service.app import HEALTH_PATH, service_app
from tinker_atropos.tinker_service.checkpoints import CheckpointStore
from tinker_atropos.tinker_service.engine import Engine
from tinker_atropos.tinker_service.futures import Futures
from tinker_atropos.tinker_service.registry import Registry
from tinker_atropos.tinker_service.service import Service
from tinker_atropos.tinker_service.worker import Worker

TIDY_SECONDS = 10.0
SWEEP_SECONDS = 600.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TinkerServiceOptions:
    """The command's options. `port` 0: the kernel's choice, written to `port_file`. `idle_exit` 0: never."""

    model: str
    data: Path
    host: str
    port: int
    key_file: Path | None
    device: str
    threads: int
    port_file: Path | None
    idle_exit: float


async def run_tinker_service(options: TinkerServiceOptions, env_vars: Mapping[str, str] = os.environ) -> None:
    """Serve until SIGTERM, SIGINT or `idle_exit`. Raises RunError when it cannot start."""
    key = read_key(options.key_file, env_vars)
    listener = bind(options.host, options.port, "--port")
    torch.set_num_threads(options.threads)
    engine = Engine(options.model, options.device)
    store = CheckpointStore(options.data)
    store.sweep()
    service = Service(engine, Worker(engine.sample), store, Registry())
    futures = Futures()
    gate = Gate(service_app(service, futures), key, open_path=HEALTH_PATH)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with serve(gate, listener) as port:
        log.info("the Tinker service listens on http://%s:%d", options.host, port)
        if options.port_file is not None:
            _write_port(options.port_file, port)
        tidying = asyncio.create_task(_tidy(service, futures, gate, options.idle_exit, stopped), name="tidy")
        await stopped.wait()
        tidying.cancel()
    service.worker.stop()


def read_key(key_file: Path | None, env_vars: Mapping[str, str]) -> str:
    """The key every request must carry. Raises ConfigError saying how to give one."""
    if key_file is not None:
        try:
            key, source = key_file.read_text(encoding="utf-8").strip(), f"--key-file {key_file}"
        except OSError as error:
            raise ConfigError(f"cannot read --key-file {key_file}: {error.strerror}") from None
    else:
        key, source = env_vars.get("TINKER_API_KEY", ""), "TINKER_API_KEY"
    if not key.startswith(KEY_PREFIX) or not key.isascii():
        fault = "does not start with it" if key else "is not set"
        raise ConfigError(
            f"the service needs a key that starts with {KEY_PREFIX!r}, and {source} {fault}; "
            f"set TINKER_API_KEY or pass --key-file, with any key you choose"
        )
    return key


async def _tidy(service: Service, futures: Futures, gate: Gate, idle_exit: float, stopped: asyncio.Event) -> None:
    """Forget what nobody will ask for again; stop when idle for long enough."""
    swept = time.monotonic()
    while True:
        await asyncio.sleep(min(TIDY_SECONDS, idle_exit / 4) if idle_exit else TIDY_SECONDS)
        now = time.monotonic()
        futures.forget_expired(now)
        service.registry.end_silent_sessions(now)
        if now - swept > SWEEP_SECONDS:
            swept = now
            service.submit(service.store.sweep)
        if idle_exit and gate.idle_seconds >= idle_exit:
            log.info("no request for %.0f s: the Tinker service ends", idle_exit)
            stopped.set()


def _write_port(path: Path, port: int) -> None:
    """Whoever waits for the file never sees half of it."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(f"{port}\n", encoding="ascii")
    temporary.rename(path)
