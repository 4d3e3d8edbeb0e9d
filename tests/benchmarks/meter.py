"""Time by the clock and of the cores, and memory, as the kernel counts them."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # some who measure run in a Python without the operator
    from tests.integration.cluster.control_plane import ControlPlane

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int | None) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mib(pid: int) -> float:
    """Memory of a process now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_mib(pid: int) -> float:
    """The most memory that a process had since it began, or since `forget_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def forget_peak(pid: int) -> None:
    """The peak of a process begins again at what it has now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="utf-8")


@dataclass(frozen=True)
class Used:
    """Seconds by the clock, and of the cores by one process."""

    seconds: float
    cpu: float


class Stopwatch:
    """Begins when it is made."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu, self._began = cpu_seconds(pid), time.monotonic()

    def read(self) -> Used:
        return Used(time.monotonic() - self._began, cpu_seconds(self._pid) - self._cpu)


@dataclass(frozen=True)
class Span:
    """What a step took: seconds by the clock, and of the cores by the controller, the API server and etcd."""

    seconds: float
    controller: float
    api_server: float
    etcd: float

    @property
    def cores(self) -> float:
        """All three together: a busy machine changes it less than the time by the clock."""
        return self.controller + self.api_server + self.etcd

    def in_words(self, count: int) -> str:
        parts = (self.seconds, self.controller, self.api_server, self.etcd)
        each, own, server, etcd = (1000 * part / count for part in parts)
        cores = f"CPU {own:.1f} ms, API server {server:.1f} ms, etcd {etcd:.1f} ms"
        return f"{self.seconds:.1f} s ({each:.1f} ms each; {cores})"


class Meter:
    """Begins when it is made."""

    def __init__(self, controller_pid: int | None, plane: "ControlPlane") -> None:
        self._pids = (controller_pid, plane.api_server_pid, plane.etcd_pid)
        self._cpu = [cpu_seconds(pid) for pid in self._pids]
        self._began = time.monotonic()

    def until(self, moment: float) -> Span:
        """Up to that moment of `time.monotonic()`, which was just now."""
        own, server, etcd = (cpu_seconds(pid) - before for pid, before in zip(self._pids, self._cpu, strict=True))
        return Span(moment - self._began, own, server, etcd)
