"""How much room a disk has: a full one is waited for, and told. So is one that is read-only for a while."""

import errno
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

from rl_contract.processes import DISK_FULL_ERRORS

PROBED_BYTES = 64 * 1024
DISK_ERRORS = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY})
WAITED_FOR = DISK_FULL_ERRORS | {errno.EROFS}
"""By whoever writes the run's own files, which have been writable; an environment's code may try what never is."""

FULL_SECONDS = 1.0
"""How often a write that found the disk full is tried again."""


def room_sentence(folder: Path) -> str:
    """`no room is left in /data (0 of 12 MB free): make some`; a quota may leave none on a disk that has some."""
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return f"{folder} is read-only: mount it to be written"
    usage = shutil.disk_usage(folder)
    return f"no room is left in {folder} ({usage.free // 10**6} of {usage.total // 10**6} MB free): make some"


def error_sentence(error: OSError) -> str:
    """`Permission denied: /data/metrics-2.jsonl.zst`."""
    return f"{error.strerror}: {error.filename}" if error.filename else error.strerror or str(error)


def is_of_full_disk(error: sqlite3.Error, folder: Path) -> bool:
    """A quota, a file beside the database that cannot grow and a read-only disk are several errors to SQLite."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    return code == sqlite3.SQLITE_FULL or (code & 0xFF in DISK_ERRORS and is_full(folder))


def is_full(folder: Path) -> bool:
    """Whether not even PROBED_BYTES can be written there: some libraries do not say why they could not."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            return file.write(bytes(PROBED_BYTES)) < PROBED_BYTES
    except OSError as error:
        return error.errno in WAITED_FOR
