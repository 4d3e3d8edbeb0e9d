"""The server of a sandbox on this machine: two processes, of which the inner one serves its parent's stream."""

import json
import os
import socket
import sys
import threading
from typing import Any, NoReturn

from tinker_atropos.sandboxes.sandbox_server import walls
from tinker_atropos.sandboxes.sandbox_server.process_tree import kill_all
from tinker_atropos.sandboxes.sandbox_server.process_watch import ProcessWatch, limit_resources
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
    outer_lives, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(held)
        serve_one(descriptor, outer_lives, folder, limits, has_namespaces=has_namespaces)
    os.close(descriptor)
    os.waitpid(child, 0)
    kill_all()  # the kernel has done so, where there is a pid namespace
    remove_folder(folder)


def serve_one(descriptor: int, outer_lives: int, folder: str, limits: Limits, *, has_namespaces: bool) -> NoReturn:
    """In the inner process, until the stream is closed or the outer process ends, and with it the pipe `outer_lives`.

    A pipe, not a signal: Python's handler of one that comes just before a thread waits runs after that wait.
    """
    if has_namespaces:
        walls.die_with_parent()
        stand = walls.raise_walls(folder, limits["disk_mb"], is_networked=limits["network"])
    else:
        stand = walls.raise_plain_walls()
    walls.keep_from_inspection()
    os.chdir(folder)
    limit_resources(limits["memory_mb"], limits["disk_mb"], limits["processes"], has_namespaces=has_namespaces)
    threading.stack_size(THREAD_STACK_BYTES)
    watch = ProcessWatch(limits["memory_mb"], limits["processes"])

    def end() -> NoReturn:
        watch.close()
        kill_all()
        if not has_namespaces:  # the outer process may be gone
            remove_folder(folder)
        os._exit(0)

    def end_with_outer() -> NoReturn:
        os.read(outer_lives, 1)
        end()

    try:
        watch.begin()
        threading.Thread(target=end_with_outer, name="outer", daemon=True).start()
        search_path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
        SandboxServer(socket.socket(fileno=descriptor), folder, watch, stand, {"PATH": search_path}).serve()
    finally:
        end()
