"""Clocks that a test may move for one process: a small library that is preloaded into it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


class JumpingClock:
    """Without a C compiler there is none: `env_vars` is empty, and `jump` and `elapse` return that nothing happened."""

    def __init__(self, folder: Path) -> None:
        self._offsets = folder / "offsets"
        self._of_day = self._elapsed = 0
        self._write()
        self.env_vars: Mapping[str, str] = {}
        if compiler := shutil.which("cc"):
            library = folder / "jumping_clock.so"
            subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True, timeout=60)
            self.env_vars = {"LD_PRELOAD": str(library), "CLOCK_OFFSETS_FILE": str(self._offsets)}
            self._prove()

    def jump(self, hours: int) -> bool:
        """Shift the time of day by this many hours; 0: correct again."""
        self._of_day = hours * 3600
        self._write()
        return bool(self.env_vars)

    def elapse(self, seconds: int) -> bool:
        """Let this much time pass at once, for timers as well."""
        self._elapsed += seconds
        self._write()
        return bool(self.env_vars)

    @property
    def elapsed(self) -> bool:
        """Whether time passed that others have not seen yet."""
        return self._elapsed > 0

    def set_right(self) -> None:
        """Both clocks. No process may be alive that has seen time elapse: it would run backwards."""
        self._of_day = self._elapsed = 0
        self._write()

    def _write(self) -> None:
        """Atomically: concurrent readers must not see time run backwards."""
        unfinished = self._offsets.with_suffix(".new")
        unfinished.write_text(f"{self._of_day + self._elapsed} {self._elapsed}", encoding="utf-8")
        unfinished.replace(self._offsets)

    def _prove(self) -> None:
        before = self._read()
        self.jump(1)
        self.elapse(60)
        of_day, monotonic = (now - then for now, then in zip(self._read(), before, strict=True))
        assert of_day >= 3660, "the preloaded library moves no time of day"
        assert monotonic >= 60, "the preloaded library moves no monotonic clock"
        self.set_right()

    def _read(self) -> tuple[float, float]:
        """What a process sees: the time of day, and the monotonic clock."""
        program = [sys.executable, "-c", "import time; print(time.time(), time.monotonic())"]
        env_vars = {**os.environ, **self.env_vars}
        text = subprocess.run(program, env=env_vars, check=True, capture_output=True, timeout=60).stdout
        of_day, monotonic = map(float, text.split())
        return of_day, monotonic
