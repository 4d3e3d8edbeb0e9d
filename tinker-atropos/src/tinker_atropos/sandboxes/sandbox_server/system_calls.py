"""System calls of Linux for which Python has no function. All raise OSError; on another system, too.

Sources: mount(2), mount_setattr(2), prctl(2), capset(2), unshare(2).
"""

import ctypes
import errno
import os
import struct

CLONE_NEWNS, CLONE_NEWIPC = 0x00020000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 1 << 12, 1 << 14, 1 << 18

READ_ONLY, NO_DEVICES = 1, 4
"""Attributes of mounts."""

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 1, 4, 24, 28
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38

_AT_FDCWD, _AT_RECURSIVE, _SYS_MOUNT_SETATTR = -100, 0x8000, 442
_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITIES_BYTES = 24


def unshare(flags: int) -> None:
    _checked("unshare", flags)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    _checked("mount", os.fsencode(source), os.fsencode(target), kind.encode(), flags, options.encode())


def set_mount(path: str, *, add: int = 0, remove: int = 0, below: bool = False) -> None:
    """Attributes of the mount at a path, and of all `below` it."""
    attributes = struct.pack("=QQQQ", add, remove, 0, 0)
    scope = _AT_RECURSIVE if below else 0
    _checked("syscall", _SYS_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), scope, attributes, len(attributes))


def prctl(option: int, value: int) -> None:
    _checked("prctl", option, value, 0, 0, 0)


def drop_own_capabilities() -> None:
    """Of this thread, and of what it starts."""
    _checked("capset", struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), bytes(_CAPABILITIES_BYTES))


def _checked(name: str, *arguments: int | bytes) -> None:
    try:
        outcome = getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)
    except AttributeError:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
    if outcome == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
