"""The api process: holds the ports, and restarts the worker that serves them when it dies.

The kubelet would wait 10, 20, 40 s before restarting a container, and an environment gives up sooner. The ports stay
open in the meantime: clients that connect during a restart wait instead of being refused.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import orjson

from rl_contract.env_vars import RL_API_URL, RL_OPS_PORT
from tinker_atropos.errors import InternalError
from tinker_atropos.serving import bind
from tinker_atropos.settings import Settings
from tinker_atropos.trajectory_api.api_worker import WorkerOptions
from tinker_atropos.trajectory_api.store.journal import Journal

DEFAULT_MAX_JOURNAL_BYTES = 2 * 2**30
RESPAWN_SECONDS = 0.2
SHORT_LIFE_SECONDS = 5.0
SHORT_LIVES_ALLOWED = 5
"""A worker that exits by itself this often, this soon, is given up. SIGKILL comes from outside and does not count."""

STOP_SECONDS = 5.0

KEEP_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""For connections that are accepted: a node that vanished is missed within 30 s. A frozen process has a kernel that
answers.
"""

logger = logging.getLogger(__name__)


async def run_api(settings: Settings, data: Path, max_journal_bytes: int = DEFAULT_MAX_JOURNAL_BYTES) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises InternalError for a port in use, a journal that cannot be opened, or a worker that does not stay alive.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    address = settings.api_address
    with (
        bind(address.host, address.port, RL_API_URL) as data_socket,
        bind(settings.ops_host, settings.ops_port, RL_OPS_PORT) as ops_socket,
    ):
        data_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEP_ALIVE.items():
            if hasattr(socket, option):  # not everywhere
                data_socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        Journal(data, max_journal_bytes).close()  # a journal that cannot be opened is reported once, by name
        logger.info("trajectory API on %s:%d, journal in %s", address.host, address.port, data)
        options = WorkerOptions(
            str(data),
            max_journal_bytes,
            data_socket.fileno(),
            ops_socket.fileno(),
            restarts=0,
            environment_grace=settings.environment_grace if settings.remote_environments else None,
            path=address.path,
        )
        await _keep_alive(stop, options)


async def _keep_alive(stop: asyncio.Event, options: WorkerOptions) -> None:
    short_lives = 0
    while not stop.is_set():
        started = time.monotonic()
        exit_code = await _live(stop, options)
        if stop.is_set():
            return
        failed = exit_code != -signal.SIGKILL and time.monotonic() - started < SHORT_LIFE_SECONDS
        short_lives = short_lives + 1 if failed else 0
        if short_lives >= SHORT_LIVES_ALLOWED:
            raise InternalError(
                f"the api's worker ended {short_lives} times in a row within {SHORT_LIFE_SECONDS:g} s of its start, "
                f"last with exit code {exit_code}; its log above says why"
            )
        logger.warning("the api's worker ended with exit code %s; starting it again", exit_code)
        options = replace(options, restarts=options.restarts + 1)
        await _wait(stop, RESPAWN_SECONDS)


async def _live(stop: asyncio.Event, options: WorkerOptions) -> int:
    """Run the worker once; returns its exit code. Stops it when `stop` is set."""
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # the working directory may contain untrusted modules
        "-m",
        "tinker_atropos.trajectory_api.api_worker",
        orjson.dumps(options).decode(),
        stdin=asyncio.subprocess.PIPE,
        pass_fds=(options.data_socket, options.ops_socket),
        start_new_session=True,  # Ctrl-C reaches only the parent, which stops the worker cleanly
    )
    ended = asyncio.create_task(worker.wait())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            worker.terminate()
            await asyncio.wait((ended,), timeout=STOP_SECONDS)
    finally:
        stopping.cancel()
        if not ended.done():
            worker.kill()
    return await ended


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
