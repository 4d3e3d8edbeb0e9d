"""Ends processes that outlived the supervisor that started them, because its reaper was killed, too.

Every container holds the lock of its folder itself, so no process id on disk has to be trusted: after a reboot, or
when another process has since got the id, the lock is not held.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rl_operator.errors import TargetUnreachableError
from rl_operator.local.state.locks import is_held

DEADLINE_SECONDS: Final = 5.0


def end_left_over(lock: Path) -> None:
    """Kill the process groups of all lock holders. Raises TargetUnreachableError if one does not end."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while is_held(lock):
        holders = tuple(_holders(lock))
        for pid in holders:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(os.getpgid(pid), signal.SIGKILL)
        if time.monotonic() > deadline:
            who = ", ".join(map(str, holders)) or "of another user"
            raise TargetUnreachableError(
                f"a process that an earlier supervisor started does not end, and holds {lock}: end process {who}"
            )
        time.sleep(0.02)


def _holders(path: Path) -> Iterator[int]:
    """The processes that have the file open."""
    if Path("/proc/self/fd").exists():
        yield from _holders_by_proc(path.resolve())
    elif lsof := shutil.which("lsof"):  # macOS has it
        listed = subprocess.run([lsof, "-t", path], capture_output=True, text=True, check=False)  # noqa: S603 -- a tool
        yield from map(int, listed.stdout.split())


def _holders_by_proc(path: Path) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or belongs to another user
            if any(_is(link, path) for link in folder.iterdir()):
                yield int(folder.parent.name)


def _is(link: Path, path: Path) -> bool:
    try:
        return link.readlink() == path
    except OSError:
        return False
