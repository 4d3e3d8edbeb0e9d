"""What sandboxes on this machine cost, and the servers of pods on loopback: `python -m tests.benchmarks.sandbox_bench`.
Prints a table; asserts nothing.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.meter import resident_mib
from tests.unit.tinker_atropos.sandboxes.conftest import eventually, server_of, shell
from tests.unit.tinker_atropos.sandboxes.pod_servers import OWNER, PodProcess

from tinker_atropos.sandboxes.local_pool import LocalSandbox, LocalSandboxes
from tinker_atropos.sandboxes.pod_pool import PodSandboxes, connected
from tinker_atropos.sandboxes.sandbox import SandboxLimits

TIMES = 50
AT_ONCE = 128
BETWEEN_LEASES = 0.5
"""Seconds: a pool that is asked without a pause is empty, and each lease waits for a start."""


def milliseconds(work: Callable[[], object], pause: float = 0.0) -> list[float]:
    taken = []
    for _ in range(TIMES):
        time.sleep(pause)
        began = time.perf_counter()
        work()
        taken.append(1000 * (time.perf_counter() - began))
    return sorted(taken)


def row(name: str, taken: list[float]) -> str:
    return f"| {name} | {statistics.median(taken):.2f} | {taken[int(0.95 * len(taken))]:.2f} |"


def one_after_the_other() -> None:
    starts = milliseconds(lambda: LocalSandbox(SandboxLimits()).close())
    pool = LocalSandboxes(SandboxLimits(), warm=4)
    leases = milliseconds(pool.lease, BETWEEN_LEASES)
    pool.close()
    sandbox = LocalSandbox(SandboxLimits())
    print(f"walls: {', '.join(sandbox.walls) or 'none'}\n")
    print("| | p50 ms | p95 ms |\n|---|---|---|")
    print(row("start and end of a sandbox", starts))
    print(row("lease from a warm pool", leases))
    print(row("command: true", milliseconds(lambda: shell(sandbox, "true"))))
    print(row("command: python -c pass", milliseconds(lambda: shell(sandbox, "python3 -S -c pass"))))
    print(row("write a file of 10 kB", milliseconds(lambda: sandbox.write_file("a", b"x" * 10_000))))
    sandbox.close()


def servers_of_pods() -> None:
    """As many as leases are measured: none is used again. Half of them wait in a pool."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pods = [stack.enter_context(PodProcess(place / str(number))) for number in range(2 * TIMES)]
        ahead, later = itertools.cycle([each.address for each in pods[:TIMES]]), iter(pods[TIMES:])
        pool = PodSandboxes("loopback", 0, OWNER, TIMES, connect=lambda: connected(*next(ahead)))
        stack.callback(pool.close)
        eventually("leased ahead", lambda: len(pool._waiting) == TIMES)
        print(row("pod: lease from a pool", milliseconds(pool.lease)))
        print(row("pod: connect and lease", milliseconds(lambda: next(later).leased())))
        sandbox = next(iter(pool._held))
        print(row("pod: command: true", milliseconds(lambda: shell(sandbox, "true"))))
        print(row("pod: write a file of 10 kB", milliseconds(lambda: sandbox.write_file("a", b"x" * 10_000))))
        print(f"\nA server that waits has {resident_mib(pods[0].process.pid):.0f} MiB resident")


def many_at_once() -> None:
    pool = LocalSandboxes(SandboxLimits(), warm=0)
    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        sandboxes = list(threads.map(lambda _: pool.lease(), range(AT_ONCE)))
        started = time.perf_counter()
        list(threads.map(lambda sandbox: shell(sandbox, "echo here"), sandboxes))
        told = time.perf_counter()
    servers = [each for sandbox in sandboxes for each in (server_of(sandbox), sandbox._process.pid)]
    memory = sum(map(resident_mib, servers)) / AT_ONCE
    pool.close()
    ended = time.perf_counter()
    print(f"\n{AT_ONCE} at once: started in {started - began:.1f} s, a command in each in {told - started:.2f} s,")
    print(f"ended in {ended - told:.1f} s; {memory:.0f} MiB resident each, of which most is shared")


if __name__ == "__main__":
    one_after_the_other()
    servers_of_pods()
    many_at_once()
