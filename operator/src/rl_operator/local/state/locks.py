"""File locks: the kernel releases them when their holder dies, so no stale lock can remain.

Who only looks whether a lock is held takes it as a shared one for a moment, and so keeps nobody from taking it.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from rl_operator.local.state.layout import STATE_DIR_VARIABLE
from rl_operator.operator_errors import TargetUnreachableError

LOCK_DEADLINE_SECONDS = 15.0
LOOKERS_SECONDS = 1.0
"""How long those who only look may be in the way: microseconds, unless one is frozen just then."""


class FileLock:
    """An exclusive lock on a file, between processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the lock if it is free; returns whether it is ours now."""
        descriptor = _open(self._path)
        deadline = time.monotonic() + LOOKERS_SECONDS
        while not _locks(descriptor, fcntl.LOCK_EX):
            if not _locks(descriptor, fcntl.LOCK_SH) or time.monotonic() > deadline:
                os.close(descriptor)
                return False
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            time.sleep(0.001)
        self._descriptor = descriptor
        return True

    def sign(self, pid: int) -> None:
        """Write the holder's process id into the file: for users, and for ending it. A full disk costs only that."""
        os.ftruncate(self.descriptor, 0)
        with contextlib.suppress(OSError):
            os.pwrite(self.descriptor, f"{pid}\n".encode(), 0)

    @property
    def descriptor(self) -> int:
        """To be inherited by a process that is to hold the lock while it is alive."""
        assert self._descriptor is not None
        return self._descriptor

    def give_back(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock for a few file operations. Raises TargetUnreachableError if another process keeps it."""
    lock = FileLock(path)
    deadline = time.monotonic() + LOCK_DEADLINE_SECONDS
    while not lock.take():
        if time.monotonic() > deadline:
            raise TargetUnreachableError(
                f"another process has kept {path} locked for {LOCK_DEADLINE_SECONDS:.0f} s; end it and try again"
            )
        time.sleep(0.005)
    try:
        yield
    finally:
        lock.give_back()


def is_held(path: Path) -> bool:
    if not path.exists():
        return False
    descriptor = _open(path)
    try:
        return not _locks(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def holder(path: Path) -> int | None:
    """The process id of the holder of a signed lock; None: it is not held."""
    signature = path.read_text().strip() if is_held(path) else ""
    return int(signature) if signature else None


def _locks(descriptor: int, mode: int) -> bool:
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise TargetUnreachableError(
            f"cannot write in the state folder: {path}: {error.strerror}; set {STATE_DIR_VARIABLE} to another folder"
        ) from error
