"""CPU seconds of all processes of a local run, by role, over time."""

import contextlib
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import numpy as np
from tests.benchmarks.meter import cpu_seconds
from tests.benchmarks.reasoning_gym_bench import descendants

READING_SECONDS: Final = 0.25

ROLES: Final = {
    "service": " tinker-service ",
    "trainer": " trainer --config",
    "environment": " environment ",
    "api": " api --data",
    "api's worker": "api_worker",
    "supervisor": "rl_operator.process.supervise",
}
"""A part of the command line of each process of a run; all of them name the state folder. Each role stands before the
one that starts it.
"""


class RunCpu:
    """CPU seconds of the processes of one state folder and of those that they started, read every quarter of a second
    until the block ends. A process that has ended keeps what it had. `beside`: other processes to count, with a role of
    their own.
    """

    def __init__(self, state: str, beside: Mapping[int, str] | None = None) -> None:
        self._state, self._beside = state, dict(beside or {})
        self._roles: dict[int, str] = dict(self._beside)
        self._seconds: dict[int, float] = {}
        self._moments: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_reading, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def by_role(self) -> dict[str, float]:
        """So far."""
        seconds = dict.fromkeys((*ROLES, *self._beside.values()), 0.0)
        for pid, each in list(self._seconds.items()):
            seconds[self._roles[pid]] += each
        return seconds

    def at(self, moment: float) -> float:
        """Of all roles, until a moment of `time.time()`."""
        moments, seconds = zip(*self._moments, strict=True)
        return float(np.interp(moment, moments, seconds))

    def _keep_reading(self) -> None:
        while not self._over.wait(READING_SECONDS):
            self._find_processes()
            for pid in self._roles:
                with contextlib.suppress(OSError):  # it has ended
                    self._seconds[pid] = cpu_seconds(pid)
            self._moments.append((time.time(), sum(self._seconds.values())))

    def _find_processes(self) -> None:
        """Each has its own role, else that of the process that started it. A zombie has no command line any more."""
        commands = self._commands()
        for role, part in ROLES.items():
            self._roles |= {pid: role for pid, command in commands.items() if part in command}
        for role in (*ROLES, *self._beside.values()):
            for pid in [pid for pid, each in self._roles.items() if each == role]:
                with contextlib.suppress(OSError):
                    for child in descendants(pid):
                        self._roles.setdefault(child, role)

    def _commands(self) -> dict[int, str]:
        """Command lines that name the state folder."""
        commands = {}
        for pid in (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if self._state in command:
                    commands[pid] = command
        return commands
