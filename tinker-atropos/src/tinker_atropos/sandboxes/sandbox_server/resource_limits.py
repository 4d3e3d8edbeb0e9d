"""What the kernel allows each process of a sandbox."""

import resource

from tinker_atropos.sandboxes.sandbox_server.process_tree import threads_of_user
from tinker_atropos.sandboxes.sandbox_server.process_watch import THREADS_FOR_A_PROCESS

SERVER_THREADS = 256
ROOM_FOR_OTHERS = 4096


def limit_resources(memory_mb: int, disk_mb: int, processes: int, *, has_namespaces: bool) -> None:
    """What this process and all commands may use, each; sizes in MiB.

    RLIMIT_DATA, not RLIMIT_AS: runtimes such as node and Go reserve far more address space than they ever write to.
    """
    sizes = {
        resource.RLIMIT_DATA: memory_mb * 2**20,
        resource.RLIMIT_FSIZE: disk_mb * 2**20,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 1024,
    }
    own_threads = processes * THREADS_FOR_A_PROCESS + SERVER_THREADS
    # Without a user namespace all programs of this user count, later sandboxes too; for root there is no such limit.
    sizes[resource.RLIMIT_NPROC] = own_threads if has_namespaces else own_threads + threads_of_user() + ROOM_FOR_OTHERS
    for kind, size in sizes.items():
        _, most = resource.getrlimit(kind)
        bound = size if most == resource.RLIM_INFINITY else min(size, most)
        resource.setrlimit(kind, (bound, bound))
