"""The files that a sandbox sees: its folder, a read-only system, and nothing of other programs' temporary files.

For the first process of a mount namespace that has all capabilities in it. All functions raise OSError.
"""

import os
import sys

from tinker_atropos.sandboxes.sandbox_server.system_calls import (
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    NO_DEVICES,
    READ_ONLY,
    mount,
    set_mount,
)

INODES_PER_MB = 256
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108  # they are replaced, not used
SOCKETS_OF_SERVICES = ("/run", "/var/run")
"""A network namespace does not keep programs from these: whoever has the path of a socket can connect to it."""
SECRETS = ("/run/secrets", "/var/run/secrets", "/run/user")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
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
    set_mount("/", add=READ_ONLY | NO_DEVICES, below=True)
    for each in writable:
        set_mount(each, remove=READ_ONLY)


def mount_devices(place: str) -> None:
    """A /dev with what every program may use. Its shared memory is a part of the folder's file system."""
    nodes = {name: os.open(f"/dev/{name}", os.O_PATH) for name in DEVICES if os.path.exists(f"/dev/{name}")}
    mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "size=64k,mode=0755")
    for name, node in nodes.items():
        os.close(os.open(f"/dev/{name}", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
        mount(f"/proc/self/fd/{node}", f"/dev/{name}", "", MS_BIND)
        set_mount(f"/dev/{name}", remove=READ_ONLY | NO_DEVICES)
        os.close(node)
    for name, target in DEVICE_LINKS.items():
        os.symlink(target, f"/dev/{name}")
    os.mkdir("/dev/shm")  # noqa: S108  # its own, not the machine's
    mount(place, "/dev/shm", "", MS_BIND)  # noqa: S108
    os.mkdir("/dev/pts")
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID, "newinstance,ptmxmode=0666,mode=0620")
    set_mount("/dev", add=READ_ONLY)


def mount_proc() -> None:
    """Read-only: some files of /proc/sys can be written by root without any capability, and are the whole machine's."""
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
    set_mount("/proc", add=READ_ONLY)


def _is_needed(path: str) -> bool:
    """Whether this program, its interpreter or a program on the search path lies in it."""
    return any(os.path.commonpath([path, each]) == path for each in _needed())


def _needed() -> list[str]:
    programs = os.path.dirname(os.path.abspath(sys.executable))
    paths = [__file__, sys.prefix, sys.base_prefix, programs, os.path.dirname(programs), *os.get_exec_path()]
    return [os.path.realpath(each) for each in paths]
