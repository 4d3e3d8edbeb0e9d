"""No container outlives the supervisor that started it: the supervisor's end of the reaper and, where the reaper was
killed, too, the end of what is left.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rl_operator.local.programs import reaper
from rl_operator.local.state.locks import is_held
from rl_operator.operator_errors import TargetUnreachableError


class Leash:
    """Process groups that die with this process. Use as a context manager."""

    def __init__(self) -> None:
        self._groups: set[int] = set()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._pipe.close()
        self._reaper.wait(timeout=10)

    def hold(self, group: int) -> None:
        self._groups.add(group)
        self._tell(f"+{group}\n")

    def release(self, group: int) -> None:
        self._groups.discard(group)
        self._tell(f"-{group}\n")

    def _start(self) -> None:
        self._reaper = subprocess.Popen(  # noqa: S603 -- our own program
            [sys.executable, "-I", "-S", str(Path(reaper.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        assert self._reaper.stdin is not None
        self._pipe = self._reaper.stdin

    def _tell(self, line: str) -> None:
        try:
            self._send(line)
        except BrokenPipeError:  # the reaper was killed: start another one and send it everything again
            with contextlib.suppress(BrokenPipeError):
                self._pipe.close()
            self._reaper.wait(timeout=10)
            self._start()
            self._send("".join(f"+{group}\n" for group in sorted(self._groups)))

    def _send(self, text: str) -> None:
        self._pipe.write(text.encode())
        self._pipe.flush()


DEADLINE_SECONDS: Final = 5.0


def end_left_over(lock: Path) -> None:
    """Kill the process groups of all lock holders. Raises TargetUnreachableError if one does not end.

    Every container holds the lock of its folder itself, so no process id on disk has to be trusted: after a reboot, or
    when another process has since got the id, the lock is not held.
    """
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
        for folder in Path("/proc").glob("[0-9]*/fd"):
            with contextlib.suppress(OSError):  # it ended meanwhile, or belongs to another user
                if any(_is(link, path.resolve()) for link in folder.iterdir()):
                    yield int(folder.parent.name)
    elif lsof := shutil.which("lsof"):  # macOS has it
        listed = subprocess.run([lsof, "-t", path], capture_output=True, text=True, check=False)  # noqa: S603 -- a tool
        yield from map(int, listed.stdout.split())


def _is(link: Path, path: Path) -> bool:
    try:
        return link.readlink() == path
    except OSError:
        return False
