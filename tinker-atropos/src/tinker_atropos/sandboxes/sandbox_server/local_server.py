"""The server of a sandbox on this machine: two processes, of which the inner one serves its parent's stream."""

import json
import os
import signal
import socket
import sys
import threading
from typing import Any, NoReturn

from tinker_atropos.sandboxes.sandbox_server import walls
from tinker_atropos.sandboxes.sandbox_server.process_tree import kill_all
from tinker_atropos.sandboxes.sandbox_server.process_watch import ProcessWatch
from tinker_atropos.sandboxes.sandbox_server.resource_limits import limit_resources
from tinker_atropos.sandboxes.sandbox_server.sandbox_files import remove_folder
from tinker_atropos.sandboxes.sandbox_server.server import THREAD_STACK_BYTES, SandboxServer

Limits = dict[str, Any]


def main() -> None:
    """Arguments: the stream's file descriptor, the folder, and the limits as JSON. Two processes: the outer one waits
    for the other, and removes the folder.
    """
    descriptor, folder, limits = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    walls.be_first_to_go()
    has_namespaces = not limits["plain"] and walls.in_own_user_and_pids()
    walls.adopt_orphans()
    walls.keep_from_inspection()
    child = os.fork()
    if child == 0:
        serve_one(descriptor, folder, limits, has_namespaces=has_namespaces)
    os.close(descriptor)
    os.waitpid(child, 0)
    kill_all()  # the kernel has done so, where there is a pid namespace
    remove_folder(folder)


def serve_one(descriptor: int, folder: str, limits: Limits, *, has_namespaces: bool) -> NoReturn:
    """In the inner process, until the stream is closed or the outer process ends."""
    if has_namespaces:
        walls.die_with_parent()
        stand = walls.raise_walls(folder, limits["disk_mb"], is_networked=limits["network"])
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        walls.die_with_parent(signal.SIGTERM)
        stand = walls.raise_plain_walls()
    walls.keep_from_inspection()
    os.chdir(folder)
    limit_resources(limits["memory_mb"], limits["disk_mb"], limits["processes"], has_namespaces=has_namespaces)
    threading.stack_size(THREAD_STACK_BYTES)
    watch = ProcessWatch(limits["memory_mb"], limits["processes"])
    try:
        watch.begin()
        search_path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
        SandboxServer(socket.socket(fileno=descriptor), folder, watch, stand, {"PATH": search_path}).serve()
    finally:
        kill_all()
        if not has_namespaces:  # the outer process may be gone
            remove_folder(folder)
        os._exit(0)
