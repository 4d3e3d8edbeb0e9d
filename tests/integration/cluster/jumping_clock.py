"""A time of day that a test may move for one process: a small library that is preloaded into it."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


class JumpingClock:
    """Without a C compiler there is none: `env_vars` is empty, and `jump` says that nothing happened."""

    def __init__(self, folder: Path) -> None:
        self._offset = folder / "offset"
        self._offset.write_text("0", encoding="utf-8")
        self.env_vars: Mapping[str, str] = {}
        if compiler := shutil.which("cc"):
            library = folder / "jumping_clock.so"
            subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True, timeout=60)
            self.env_vars = {"LD_PRELOAD": str(library), "CLOCK_OFFSET_FILE": str(self._offset)}
            self._prove()

    def jump(self, hours: int) -> bool:
        """Put it off by so many hours; 0: right again."""
        self._offset.write_text(str(hours * 3600), encoding="utf-8")
        return bool(self.env_vars)

    def _prove(self) -> None:
        self.jump(1)
        program = [sys.executable, "-c", "import time; print(time.time())"]
        text = subprocess.run(program, env={**os.environ, **self.env_vars}, check=True, capture_output=True, timeout=60)
        assert float(text.stdout) - time.time() > 3000, "the preloaded library moves no clock"
        self.jump(0)
