"""Random choices in a test differ from commit to commit, and are the same each time for one commit.

`RL_SEED` (any text) is the seed; unset, it is the commit that is checked out. What is drawn from it is printed with the
command that draws it again.
"""

import functools
import os
import subprocess
import zlib
from pathlib import Path

WITHOUT_A_COMMIT = "0"


@functools.cache
def seed_text() -> str:
    """What RL_SEED has to be for the same draw."""
    return os.environ.get("RL_SEED") or _commit() or WITHOUT_A_COMMIT


def seed_of_commit() -> int:
    """Six digits at most: it is typed to repeat a test."""
    return zlib.crc32(seed_text().encode()) % 1_000_000


def first_seed() -> int:
    """Of tests that play several seeds in a row: RL_CHAOS_SEED, else the commit's."""
    return int(os.environ.get("RL_CHAOS_SEED") or seed_of_commit())


def _commit() -> str:
    """Empty where git is missing, or the folder came without its history."""
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""
