"""What separates a sandbox from the machine; each wall where the kernel allows it.

Sources: unshare(2), user_namespaces(7), pid_namespaces(7), capabilities(7), prctl(2), namespaces(7).
"""

import os
import signal
import socket
import struct
from collections.abc import Callable

from tinker_atropos.sandboxes.sandbox_server import private_files
from tinker_atropos.sandboxes.sandbox_server.system_calls import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    MS_PRIVATE,
    MS_REC,
    PR_CAPBSET_DROP,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    PR_SET_SECUREBITS,
    drop_own_capabilities,
    mount,
    prctl,
    unshare,
)

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
        place = private_files.mount_folder(folder, disk_mb)
        private_files.hide_services(is_networked=is_networked)

    _stands(_no_namespaces_inside)  # before /proc is read-only
    wanted: list[tuple[str, Callable[[], None]]] = [
        (FOLDER, own_folder),
        (READ_ONLY, lambda: private_files.make_read_only(place)),
        (DEVICES, lambda: private_files.mount_devices(place)),
        (PROC, private_files.mount_proc),
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
