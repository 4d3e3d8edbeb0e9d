"""While commands run: what the kernel allows each process, whether they use more than they may, and the burial of
processes that nobody waits for.
"""

import resource
import subprocess
import threading
from typing import Any

from tinker_atropos.sandboxes.sandbox_server.process_tree import (
    descendants,
    kill_all,
    proportional_bytes,
    reap_orphans,
    threads_of_user,
    use_of,
)

WATCH_SECONDS = 0.05
STARTING_SECONDS = 5.0
"""How long the end of a sandbox waits for a command that is just being started."""

THREADS_FOR_A_PROCESS = 16
"""Threads are bounded by so many times the processes: runtimes start some for each core."""


class ProcessWatch:
    """Watches all commands together: `processes` at once, and `memory_mb` MiB. When it is more, all are killed.

    With `idle_seconds` it looks that often while no command runs, too: the first process of a container inherits
    orphans of processes that others started in it.

    `is_closed` once the sandbox ends: what is killed from then on has no result.
    """

    def __init__(self, memory_mb: int, processes: int, idle_seconds: float | None = None) -> None:
        self._memory_mb, self._processes, self._idle_seconds = memory_mb, processes, idle_seconds
        self._running: dict[int, str] = {}
        self._lock = threading.Lock()
        self.is_closed = False
        self._is_busy = threading.Event()

    def start(self, program: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        """Popen, whose process is this watch's from the start: else it could be buried before it is waited for.

        Raises OSError, also once the sandbox ends.
        """
        with self._lock:
            if self.is_closed:
                raise OSError("the sandbox ends")
            process = subprocess.Popen(program, **options)
            self._running[process.pid] = ""
            self._is_busy.set()
        return process

    def close(self) -> None:
        """Nothing starts any more: whoever kills all there is then misses nobody."""
        self.is_closed = True
        if self._lock.acquire(timeout=STARTING_SECONDS):
            self._lock.release()

    def forget(self, process: "subprocess.Popen[bytes]") -> str:
        """Why it was killed from here; empty if it was not."""
        with self._lock:
            return self._running.pop(process.pid, "")

    def begin(self) -> None:
        """Watch, in a thread."""
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def _watch(self) -> None:
        while True:
            self._is_busy.wait(self._idle_seconds)
            threading.Event().wait(WATCH_SECONDS)
            self.look()

    def look(self) -> None:
        """Once. A command that starts meanwhile makes it busy again."""
        others = descendants()
        if excess := self._excess(others):
            with self._lock:
                self._running = dict.fromkeys(self._running, excess)
            kill_all()
        with self._lock:
            reap_orphans(set(self._running))
            if not self._running and not descendants():
                self._is_busy.clear()

    def _excess(self, numbers: list[int]) -> str:
        """More of what than there may be; empty if nothing is."""
        use, memory = use_of(numbers), self._memory_mb * 2**20
        if use.processes > self._processes:
            return f"more than {self._processes} processes"
        if use.threads > self._processes * THREADS_FOR_A_PROCESS:
            return f"more than {self._processes * THREADS_FOR_A_PROCESS} threads"
        if use.resident > memory and proportional_bytes(numbers) > memory:
            return f"more than {self._memory_mb} MiB of memory"
        return ""


SERVER_THREADS = 256
ROOM_FOR_OTHERS = 4096


def limit_resources(memory_mb: int, disk_mb: int, processes: int, *, has_namespaces: bool) -> None:
    """What this process and all commands may use, each; sizes in MiB.

    RLIMIT_DATA, not RLIMIT_AS: runtimes such as node and Go reserve far more address space than they ever write to.
    """
    sizes = {
        resource.RLIMIT_DATA: memory_mb * 2**20,
        resource.RLIMIT_FSIZE: disk_mb * 2**20,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 1024,
    }
    own_threads = processes * THREADS_FOR_A_PROCESS + SERVER_THREADS
    # Without a user namespace all programs of this user count, later sandboxes too; for root there is no such limit.
    sizes[resource.RLIMIT_NPROC] = own_threads if has_namespaces else own_threads + threads_of_user() + ROOM_FOR_OTHERS
    for kind, size in sizes.items():
        _, most = resource.getrlimit(kind)
        bound = size if most == resource.RLIM_INFINITY else min(size, most)
        resource.setrlimit(kind, (bound, bound))
