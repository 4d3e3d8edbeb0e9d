"""The supervisor's end of the reaper: no container outlives the supervisor that started it."""

import contextlib
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from rl_operator.local.programs import reaper


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
