"""The processes of a sandbox: which there are, what they use, and their end.

Numbers are those of /proc, which are not those of this process where a pid namespace had to do with its parent's /proc.
"""

import os
import signal
import time
from dataclasses import dataclass

MARK = "RL_SANDBOX_COMMAND"
"""A variable of every command: its processes have it, wherever they went."""

END_SECONDS = 5.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Use:
    """The use of all processes of a sandbox. `resident` in bytes: what they share counts for each of them."""

    processes: int
    threads: int
    resident: int


def descendants() -> list[int]:
    """All processes that descend from this one. For the first process of a pid namespace that is all there are."""
    own = _own_number()
    if own == os.getpid() == 1:
        return [number for number in _listed("/proc") if number != 1]
    return _below(own)


def use_of(numbers: list[int]) -> Use:
    threads = resident = processes = 0
    for number in numbers:
        if (stat := _stat(number)) and stat[0] not in (b"Z", b"X"):
            processes, threads, resident = processes + 1, threads + int(stat[17]), resident + int(stat[21]) * PAGE_BYTES
    return Use(processes, threads, resident)


def proportional_bytes(numbers: list[int]) -> int:
    """Memory, of which what is shared counts once. Slow: tens of milliseconds for each GiB."""
    total = 0
    for number in numbers:
        for line in _read(f"/proc/{number}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def kill_command(pid: int, mark: str) -> None:
    """End a command: its session, what descends from it, and what carries its mark. Three times, as they may fork."""
    sought = f"{MARK}={mark}".encode()
    for _ in range(3):
        numbers = [number for number in descendants() if _pid(number) != pid]
        doomed = [number for number in numbers if sought in _read(f"/proc/{number}/environ").split(b"\0")]
        doomed += [below for number in descendants() if _pid(number) == pid for below in _below(number)]
        for each in (pid, *map(_pid, doomed)):
            _kill(each)
        _kill_group(pid)
        if not doomed:
            return


def kill_all() -> None:
    """Everything that descends from this process.

    Outside of a pid namespace by groups: a signal to a group misses nobody who forks meanwhile, one to a process does.
    """
    if os.getpid() == 1:
        _kill(-1)
        return
    deadline = time.monotonic() + END_SECONDS
    while (left := [number for number in descendants() if is_alive(number)]) and time.monotonic() < deadline:
        for group in {_group(_pid(number)) for number in left} - {0, os.getpgrp()}:
            _kill_group(group)
        for number in left:
            _kill(_pid(number))


def threads_of_user() -> int:
    """The threads of all programs of this process's user, as RLIMIT_NPROC counts them; as far as they can be seen."""
    user = os.geteuid()
    return use_of([number for number in _listed("/proc") if _owner(number) == user]).threads


def reap_orphans(ours: set[int]) -> None:
    """Those that ended, except `ours`, for which a thread waits."""
    try:
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)) is not None:
            if ended.si_pid in ours:
                return  # it hides the others until its thread has seen it
            os.waitpid(ended.si_pid, os.WNOHANG)
    except (AttributeError, ChildProcessError):  # not Linux, or there is none
        return


def _own_number() -> int:
    try:
        return int(os.readlink("/proc/self"))
    except OSError:  # not Linux
        return os.getpid()


def _below(root: int) -> list[int]:
    """Breadth first. By the lists of children, if the kernel has them: a machine has many other processes."""
    found, waiting, parents = list[int](), [root], None
    while waiting:
        above = waiting.pop()
        children = _children(above)
        if children is None:
            parents = parents if parents is not None else _parents()
            children = [number for number, parent in parents.items() if parent == above]
        found += children
        waiting += children
    return found


def _children(number: int) -> list[int] | None:
    """None if the kernel has no such list."""
    found = list[int]()
    for task in _listed(f"/proc/{number}/task"):
        try:
            with open(f"/proc/{number}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
        except ProcessLookupError:
            continue
        except FileNotFoundError:
            if os.path.exists(f"/proc/{number}/task/{task}"):
                return None
        except OSError:
            continue
    return found


def _parents() -> dict[int, int]:
    """The parents of all processes that are seen here; empty where there is no /proc."""
    return {number: int(stat[1]) for number in _listed("/proc") if (stat := _stat(number))}


def _pid(number: int) -> int:
    """As this process has to name it; 0 (no process) once it is gone."""
    if _own_number() == os.getpid():
        return number
    for line in _read(f"/proc/{number}/status").splitlines():
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return 0


def _stat(number: int) -> list[bytes]:
    """From the state on; empty if it is gone. Source: proc_pid_stat(5), whose third field is the first here."""
    return _read(f"/proc/{number}/stat").rpartition(b")")[2].split()


def is_alive(number: int) -> bool:
    stat = _stat(number)
    return bool(stat) and stat[0] not in (b"Z", b"X")


def _group(pid: int) -> int:
    """0 once it is gone."""
    try:
        return os.getpgid(pid) if pid else 0
    except OSError:
        return 0


def _owner(number: int) -> int | None:
    try:
        return os.stat(f"/proc/{number}").st_uid
    except OSError:  # it is gone
        return None


def _listed(folder: str) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return []


def _read(path: str) -> bytes:
    """Empty if the process is gone, or cannot be looked at."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _kill(pid: int) -> None:
    if pid == 0:  # kill(0) would be our own group
        return
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
