"""Time in which this process ran: what deadlines are counted in.

A process that was frozen (SIGSTOP, docker pause, the cgroup freezer, a migrated virtual machine) or that got no CPU
must not find all of its deadlines passed when it goes on, nor take everyone else for dead. A thread looks at the clock
twice a second: what lies between two looks counts for at most LONGEST_LOOK. Event loops made by `run` measure time like
this, and so do the timeouts of asyncio, anyio and httpx in them.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

LOOK_SECONDS = 0.5
LONGEST_LOOK = 2.0
FROZEN_SECONDS = 5.0
"""From here on it is told: less is a busy machine."""

T = TypeVar("T")


class RunningTime:
    """`clock` goes on while the process does not run; `cpu` is what the process has used: one that computes without
    letting another thread look is busy, and not frozen.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.process_time
    ) -> None:
        self._clock, self._cpu = clock, cpu
        self._looked = (clock(), clock())  # the clock at the last look, and the time in which the process ran
        self._used = cpu()
        self._watched = False
        self.listeners: list[Callable[[float], object]] = []
        """Told for how long the process did not run, in the thread that looks."""

    def seconds(self) -> float:
        """Like time.monotonic(), without what the process slept through. Nobody looks before `watch`."""
        at, ran = self._looked
        return ran + (min(self._clock() - at, LONGEST_LOOK) if self._watched else self._clock() - at)

    def watch(self) -> None:
        """Look from now on. Does nothing if somebody does already."""
        if not self._watched:
            self._watched = True
            threading.Thread(target=self._keep_looking, name="running time", daemon=True).start()

    def look(self) -> None:
        now, used = self._clock(), self._cpu()
        slept = now - self._looked[0] - LOOK_SECONDS
        self._looked = (now, self.seconds())
        idle, self._used = used - self._used < slept / 2, used
        if slept >= FROZEN_SECONDS and idle:
            for tell in self.listeners:
                tell(slept)

    def forked(self) -> None:
        """In a child, where no thread looks: its time goes on from here."""
        self._looked, self._watched = (self._clock(), self.seconds()), False
        self.listeners.clear()

    def _keep_looking(self) -> None:
        while self._watched:
            time.sleep(LOOK_SECONDS)
            self.look()


PROCESS = RunningTime()
os.register_at_fork(after_in_child=PROCESS.forked)

running_seconds = PROCESS.seconds


class RunningEventLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers count the time in which the process runs."""

    def time(self) -> float:
        return running_seconds()


def run(main: Coroutine[Any, Any, T]) -> T:
    """asyncio.run, on such a loop."""
    PROCESS.watch()
    with asyncio.Runner(loop_factory=RunningEventLoop) as runner:
        return runner.run(main)
