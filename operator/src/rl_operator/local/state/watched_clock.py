"""The clock of a run's supervisor: the machine's, and when it measured nothing.

A machine sleeps, its clock is set, a supervisor is stopped or is not there: time goes on, and the run does not. Each of
these is a gap, also before this supervisor: its file has them, and its time of modification says when one last looked.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rl_operator.status.attempt.clock_gaps import ClockGap, ClockGaps

JUMP_SECONDS: Final = 2.0
"""A clock that moves by this much more or less than time passed has been set, or the machine slept: then the monotonic
clock stands still.
"""

ABSENT_SECONDS: Final = 15.0
"""Between two looks: then the supervisor did not run. It looks several times a second."""

NOTED_SECONDS: Final = 5.0
"""How often the file's time is set: a look is a few microseconds, and a write may wake up a disk."""


class WatchedClock:
    """`look` is to be called all the time. What cannot be written is kept in memory, and written later."""

    def __init__(
        self,
        path: Path,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._wall, self._monotonic = path, wall, monotonic
        self._gaps = list(_read(path))
        self._written = len(self._gaps)
        self._seen, self._passed = wall(), monotonic()
        self._noted = float("-inf")
        with contextlib.suppress(OSError):  # the first supervisor of this run
            before = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            if not -JUMP_SECONDS <= (self._seen - before).total_seconds() <= ABSENT_SECONDS:
                self._gaps.append(ClockGap(before, self._seen))
        self._note()

    def now(self) -> datetime:
        self.look()
        return self._seen

    def gaps(self) -> ClockGaps:
        return ClockGaps(tuple(self._gaps))

    def look(self) -> None:
        wall, passed = self._wall(), self._monotonic()
        ran, moved = passed - self._passed, (wall - self._seen).total_seconds()
        if abs(moved - ran) > JUMP_SECONDS or ran > ABSENT_SECONDS:
            self._gaps.append(ClockGap(self._seen, wall))
        self._seen, self._passed = wall, passed
        if self._written < len(self._gaps) or passed - self._noted >= NOTED_SECONDS:
            self._note()

    def _note(self) -> None:
        """Setting a time takes no space on the disk."""
        self._noted = self._passed
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab", buffering=0) as file:
                for gap in self._gaps[self._written :]:
                    line = f"\n{json.dumps([gap.began.timestamp(), gap.ended.timestamp()])}".encode()
                    if file.write(line) < len(line):
                        break
                    self._written += 1
        with contextlib.suppress(OSError):
            os.utime(self._path, times=(self._seen.timestamp(),) * 2)


def _read(path: Path) -> Iterator[ClockGap]:
    """A line that a full disk or a kill cut off is passed over."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        with contextlib.suppress(ValueError, TypeError):
            began, ended = json.loads(line)
            yield ClockGap(datetime.fromtimestamp(began, UTC), datetime.fromtimestamp(ended, UTC))
