"""How much room a disk has: a full one is waited for, and told."""

import shutil
import sqlite3
import tempfile
from pathlib import Path

from rl_contract.processes import DISK_FULL_ERRORS

PROBED_BYTES = 64 * 1024
DISK_ERRORS = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
FULL_SECONDS = 1.0
"""How often a write that found the disk full is tried again."""


def room_sentence(folder: Path) -> str:
    """`no room is left in /data (0 of 12 MB free)`; a quota may leave none on a disk that has some."""
    usage = shutil.disk_usage(folder)
    return f"no room is left in {folder} ({usage.free // 10**6} of {usage.total // 10**6} MB free)"


def is_of_full_disk(error: sqlite3.Error, folder: Path) -> bool:
    """A quota, and a file beside the database that cannot grow, are errors of the disk to SQLite."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    return code == sqlite3.SQLITE_FULL or (code & 0xFF in DISK_ERRORS and is_full(folder))


def is_full(folder: Path) -> bool:
    """Whether not even PROBED_BYTES can be written there: some libraries do not say why they could not."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            return file.write(bytes(PROBED_BYTES)) < PROBED_BYTES
    except OSError as error:
        return error.errno in DISK_FULL_ERRORS
