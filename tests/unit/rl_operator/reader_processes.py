"""Checks on other programs' processes."""

import os
import time
from pathlib import Path


def gone(pid: int) -> bool:
    """Whether a process has ended, possibly as a zombie."""
    give_up_at = time.monotonic() + 10
    while time.monotonic() < give_up_at:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        status = Path(f"/proc/{pid}/stat")
        if status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False
