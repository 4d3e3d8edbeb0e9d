"""The end of the run, as this process learns of it, and of the process, whatever the environment does."""

import asyncio
import logging
import multiprocessing
import multiprocessing.process
import os
import signal
import threading
import time
from collections.abc import Callable

from tinker_atropos.errors import RunError

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
STOP_SECONDS = 4.0
"""From SIGTERM to the exit, if the environment does not end by itself and has no processes of its own."""

WORKER_SECONDS = 10.0
"""How much longer the processes of an environment may take. A pod's grace period is 30 s, a run's 60 s unless set."""

OBEY_SECONDS = 2.0
"""From SIGTERM to SIGKILL for a process of the environment, and from its end to that of this process."""

LINGER_SECONDS = 15.0
"""How long the last heartbeat, and what an environment leaves behind (threads, clients), may delay the exit."""


class RunEnd:
    """Settled once, from any thread: the run is over (no error), or the environment must give up (its error)."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.settled: asyncio.Future[None] = self._loop.create_future()

    def settle(self, error: RunError | None = None) -> None:
        self._loop.call_soon_threadsafe(self._settle, error)

    def _settle(self, error: RunError | None) -> None:
        if self.settled.done():
            return
        if error is None:
            self.settled.set_result(None)
        else:
            self.settled.set_exception(error)


class Stop:
    """SIGTERM and SIGINT cancel the current task, and call `ending`, which ends the process if it does not end: by
    default `exit_within`.

    `signal.signal` and not `loop.add_signal_handler`: a reward that blocks the event loop would starve the latter.
    """

    def __init__(self, ending: Callable[[], None] | None = None) -> None:
        self.requested = False
        self._ending = ending or _exit_soon
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        os.register_at_fork(before=_hold_back, after_in_parent=_let_through, after_in_child=_end_on_signal)

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self.requested or self._task is None:
            return
        self.requested = True
        self._ending()
        self._loop.call_soon_threadsafe(self._task.cancel)


def _exit_soon() -> None:
    exit_within(STOP_SECONDS, 0, "the environment did not stop on its own")


def _hold_back() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def _let_through() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def _end_on_signal() -> None:
    """For a forked process. Environments use them for grading, and end slow ones with SIGTERM, maybe before this has
    run: so signals are blocked around the fork.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    _let_through()


def exit_within(seconds: float, exit_code: int, reason: str, worker_seconds: float = WORKER_SECONDS) -> None:
    """End the process after `seconds`, unless it has exited by then. Nothing in the process can prevent it.

    Processes that it started with multiprocessing (a pool that grades answers) get `worker_seconds` more to finish what
    they are at: the interpreter waits for them when it exits. Then they are ended, too: none outlives this process.
    """

    def end() -> None:
        time.sleep(seconds)
        if workers := multiprocessing.active_children():
            logger.info("%s within %.0f s: waiting for its %d worker processes", reason, seconds, len(workers))
            _end_workers(worker_seconds)
            time.sleep(OBEY_SECONDS)  # what waited for them may end by itself now
        logger.warning("%s within %.0f s: ending the process", reason, seconds)
        os._exit(exit_code)

    threading.Thread(target=end, name="exit", daemon=True).start()


def _end_workers(seconds: float) -> None:
    """Wait until they have ended; after `seconds` with SIGTERM, and with SIGKILL a little later."""
    for end, patience in (
        (None, seconds),
        (multiprocessing.process.BaseProcess.terminate, OBEY_SECONDS),
        (multiprocessing.process.BaseProcess.kill, OBEY_SECONDS),
    ):
        workers = multiprocessing.active_children()
        for worker in workers:
            if end is not None:
                end(worker)
        until = time.monotonic() + patience
        for worker in workers:
            worker.join(max(0.0, until - time.monotonic()))
