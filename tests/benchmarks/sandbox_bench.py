"""What sandboxes on this machine cost: `python -m tests.benchmarks.sandbox_bench`. Prints a table; asserts nothing."""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.benchmarks.meter import resident_mib
from tests.unit.tinker_atropos.sandboxes.conftest import server_of, shell

from tinker_atropos.sandboxes.local_pool import LocalSandboxes
from tinker_atropos.sandboxes.local_sandbox import LocalSandbox
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
    return f"| {name} | {statistics.median(taken):.1f} | {taken[int(0.95 * len(taken))]:.1f} |"


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
    many_at_once()
