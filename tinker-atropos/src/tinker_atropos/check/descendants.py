"""Processes that an environment started and left: none outlives the check.

On Linux all of them are found, also those whose parent has ended: they become this process's children. Elsewhere only
those that were started with multiprocessing are known.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

PR_SET_CHILD_SUBREAPER: Final = 36  # prctl(2)
OBEY_SECONDS: Final = 2.0
POLL_SECONDS: Final = 0.02


def adopt_orphans() -> None:
    """From now on."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants() -> None:
    """With SIGTERM, and with SIGKILL what does not obey. Those that stop on SIGTERM may start none in their place."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        until = time.monotonic() + OBEY_SECONDS
        while descendants() and time.monotonic() < until:
            _reap()
            time.sleep(POLL_SECONDS)
    _reap()


def descendants() -> list[int]:
    """Ids of the processes below this one; what has ended and waits to be read by its parent is none."""
    if sys.platform != "linux":
        return [child.pid for child in multiprocessing.active_children() if child.pid is not None]
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):  # it has just ended
                state, parent, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
                if state not in "ZX":
                    children[int(parent)].append(int(folder.name))
    found = [os.getpid()]
    for pid in found:
        found += children[pid]
    return found[1:]


def _reap() -> None:
    """Read what ended: otherwise it would be shown as a child until this process ends, too."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
