"""What separates a sandbox from the machine; each wall where the kernel allows it. A sandbox sees its folder, a
read-only system, and nothing of other programs' temporary files.

System calls of Linux for which Python has no function are here, too. All raise OSError; on another system, too.
Sources: unshare(2), user_namespaces(7), pid_namespaces(7), capabilities(7), prctl(2), namespaces(7), mount(2),
mount_setattr(2), capset(2).
"""

import ctypes
import errno
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable

CLONE_NEWNS, CLONE_NEWIPC = 0x00020000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 1 << 12, 1 << 14, 1 << 18

ATTRIBUTE_READ_ONLY, ATTRIBUTE_NO_DEVICES = 1, 4
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
    """Drops those of this thread, and of what it starts."""
    _checked("capset", struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), bytes(_CAPABILITIES_BYTES))


def _checked(name: str, *arguments: int | bytes) -> None:
    try:
        outcome = getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)
    except AttributeError:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
    if outcome == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


PROCESSES, FOLDER, READ_ONLY = "own processes", "own folder", "read-only files"
DEVICES, PROC, NO_NETWORK, NO_CAPABILITIES = "own devices", "own /proc", "no network", "no capabilities"

SECURE_NOROOT_LOCKED = 0b1111  # NOROOT and NO_SETUID_FIXUP, each locked
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
MAX_CAPABILITIES = 64


def in_own_user_and_pids() -> bool:
    """From now on this process is root of a user namespace, and its next child the first of a pid namespace."""
    user, group = os.geteuid(), os.getegid()
    try:
        unshare(CLONE_NEWUSER | CLONE_NEWPID)
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError:  # no such call on this system, or not allowed
        return False
    return True


def raise_walls(folder: str, disk_mb: int, *, is_networked: bool) -> list[str]:
    """Around this process, the first of a pid namespace; the names of those that stand."""
    place = folder

    def own_folder() -> None:
        nonlocal place
        unshare(CLONE_NEWNS | CLONE_NEWIPC)
        mount("none", "/", "", MS_REC | MS_PRIVATE)
        place = mount_folder(folder, disk_mb)
        hide_services(is_networked=is_networked)

    _stands(_no_namespaces_inside)  # before /proc is read-only
    wanted: list[tuple[str, Callable[[], None]]] = [
        (FOLDER, own_folder),
        (READ_ONLY, lambda: make_read_only(place)),
        (DEVICES, lambda: mount_devices(place)),
        (PROC, mount_proc),
    ]
    if not is_networked:
        wanted.append((NO_NETWORK, _no_network))
    wanted.append((NO_CAPABILITIES, drop_capabilities))
    return [PROCESSES, *(name for name, build in wanted if _stands(build))]


def raise_plain_walls() -> list[str]:
    """Those that need no namespace. Orphans of the sandbox become this process's children."""
    adopt_orphans()
    return [NO_CAPABILITIES] if _stands(drop_capabilities) else []


def drop_capabilities() -> None:
    """For good, and for all that is started from here: root in a user namespace could mount its files writable.
    Nothing gets them back: not root, and no program that is set-user-ID.
    """
    for number in range(MAX_CAPABILITIES):
        _stands(lambda number=number: prctl(PR_CAPBSET_DROP, number))  # type: ignore[misc]  # a default is its type
    _stands(lambda: prctl(PR_SET_SECUREBITS, SECURE_NOROOT_LOCKED))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    drop_own_capabilities()


def keep_from_inspection() -> None:
    """Programs of the same user can no longer read this process's memory, environment and open files, or trace it.

    What it starts is not kept from it: the attribute ends with the next execve().
    """
    _stands(lambda: prctl(PR_SET_DUMPABLE, 0))


def adopt_orphans() -> None:
    """What its children leave behind becomes this process's child."""
    _stands(lambda: prctl(PR_SET_CHILD_SUBREAPER, 1))


def die_with_parent() -> None:
    """The kernel kills this process when its parent ends."""
    _stands(lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL))


def be_first_to_go() -> None:
    """When the machine has no memory left, the kernel ends programs in sandboxes first: not who trains."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:  # not Linux, or not allowed
        return


def _no_namespaces_inside() -> None:
    """In one, a command would have capabilities again: enough for file systems in memory, without a limit."""
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")


def _no_network() -> None:
    """A network of its own, in which there is nothing but loopback."""
    unshare(CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        import fcntl

        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))


def _stands(build: Callable[[], None]) -> bool:
    try:
        build()
    except OSError:
        return False
    return True


INODES_PER_MB = 256
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108  # they are replaced, not used
SOCKETS_OF_SERVICES = ("/run", "/var/run")
"""A network namespace does not keep programs from these: whoever has the path of a socket can connect to it."""
SECRETS = ("/run/secrets", "/var/run/secrets", "/run/user")
DEVICE_FILES = ("null", "zero", "full", "random", "urandom", "tty")
DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}


def mount_folder(folder: str, disk_mb: int) -> str:
    """Make `folder` empty on a file system of a limited size, which takes the place of all temporary files unless this
    program lies among them. Returns where it is mounted.
    """
    place = _place(folder)
    options = f"size={disk_mb}m,nr_inodes={disk_mb * INODES_PER_MB},mode=0700"
    mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV, options)
    os.makedirs(folder, exist_ok=True)
    for other in TEMPORARY:
        if os.path.isdir(other) and not _is_needed(other) and not _is_in(place, other):
            mount(place, other, "", MS_BIND)
    return place


def _place(folder: str) -> str:
    """What holds the folder and nothing that a sandbox needs: as much as may vanish."""
    real = os.path.realpath(folder)
    wide = [each for each in TEMPORARY if _is_in(real, os.path.realpath(each))]
    return next((each for each in (*wide, os.path.dirname(folder)) if not _is_needed(each)), folder)


def _is_in(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder


def hide_services(*, is_networked: bool) -> None:
    """Sockets and secrets of services of this machine. With a network, /run may have the names of its servers."""
    hidden = SECRETS if is_networked else SOCKETS_OF_SERVICES
    for path in {os.path.realpath(each) for each in hidden}:
        if os.path.isdir(path) and not _is_needed(path):
            mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "size=4k,mode=0755")


def make_read_only(place: str) -> None:
    """Everything but `place`, and no devices anywhere: root could write to a disk's."""
    writable = [place, *(each for each in TEMPORARY if os.path.isdir(each) and os.path.samefile(each, place))]
    set_mount("/", add=ATTRIBUTE_READ_ONLY | ATTRIBUTE_NO_DEVICES, below=True)
    for each in writable:
        set_mount(each, remove=ATTRIBUTE_READ_ONLY)


def mount_devices(place: str) -> None:
    """A /dev with what every program may use. Its shared memory is a part of the folder's file system."""
    nodes = {name: os.open(f"/dev/{name}", os.O_PATH) for name in DEVICE_FILES if os.path.exists(f"/dev/{name}")}
    mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "size=64k,mode=0755")
    for name, node in nodes.items():
        os.close(os.open(f"/dev/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
        mount(f"/proc/self/fd/{node}", f"/dev/{name}", "", MS_BIND)
        set_mount(f"/dev/{name}", remove=ATTRIBUTE_READ_ONLY | ATTRIBUTE_NO_DEVICES)
        os.close(node)
    for name, target in DEVICE_LINKS.items():
        os.symlink(target, f"/dev/{name}")
    os.mkdir("/dev/shm")  # noqa: S108  # its own, not the machine's
    mount(place, "/dev/shm", "", MS_BIND)  # noqa: S108
    os.mkdir("/dev/pts")
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID, "newinstance,ptmxmode=0666,mode=0620")
    set_mount("/dev", add=ATTRIBUTE_READ_ONLY)


def mount_proc() -> None:
    """Read-only: some files of /proc/sys can be written by root without any capability, and are the whole machine's."""
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
    set_mount("/proc", add=ATTRIBUTE_READ_ONLY)


def _is_needed(path: str) -> bool:
    """Whether this program, its interpreter or a program on the search path lies in it."""
    return any(os.path.commonpath([path, each]) == path for each in _needed())


def _needed() -> list[str]:
    programs = os.path.dirname(os.path.abspath(sys.executable))
    paths = [__file__, sys.prefix, sys.base_prefix, programs, os.path.dirname(programs), *os.get_exec_path()]
    return [os.path.realpath(each) for each in paths]
