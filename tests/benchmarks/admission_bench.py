"""What the admission policies add to an apply: 300 creates each with and without them, with 1 and with 20 runtimes.

Needs an API server (KUBEBUILDER_ASSETS, as the integration tests). Prints a table; the goal is 5 ms more at p99. The
creates with and without take turns in blocks, so that other load on the machine affects both alike. The API server's
CPU time per create (and delete) says the same on a machine that has other things to do.
"""

import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.cluster.admin import RUNS, AdminClient
from tests.integration.cluster.control_plane import API_SERVER, OLDEST_API_SERVER, ControlPlane, find_program
from tests.integration.cluster.policies import PATHS, door, install_policies, policy_documents
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import install_runtime

CREATES, BLOCKS = 300, 6
GOAL_MILLISECONDS = 5.0
PATH = RUNS.format(namespace="default")
BINDINGS = PATHS["ValidatingAdmissionPolicyBinding"]


def run(name: str, **config: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLTrainingRun",
        "metadata": {"name": name},
        "spec": {
            "environment": "sort_digits",
            "runtime": "default",
            "config": {"group_size": 8, "batch_size": 32, **config},
            "trainer": {"seed": 1, "advantage": "leave_one_out"},
        },
    }


def bind(admin: AdminClient, *, bound: bool) -> None:
    """Remove or restore the policies' bindings, and wait until it takes effect."""
    for document in policy_documents():
        if document["kind"].endswith("Binding"):
            if bound:
                admin.post(BINDINGS, document)
            else:
                admin.delete(f"{BINDINGS}/{document['metadata']['name']}")
    bad = [run("probe", api_key="x"), run("probe", total_steps=1)]
    wait_for("the policies act or do not", lambda: all((door(admin, "default", b) is not None) is bound for b in bad))


def creates(admin: AdminClient, prefix: str, count: int) -> Iterator[float]:
    """Milliseconds of each create; the runs are deleted after it."""
    for number in range(count):
        begin = time.perf_counter()
        admin.post(PATH, run(f"{prefix}-{number}"))
        yield (time.perf_counter() - begin) * 1000
        admin.delete(f"{PATH}/{prefix}-{number}")


@dataclass
class Taken:
    """Milliseconds of each create, and of the API server's processor in all."""

    waits: list[float] = field(default_factory=list)
    cpu: float = 0.0


def cpu_milliseconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def measure(admin: AdminClient, pid: int) -> dict[bool, Taken]:
    taken = {True: Taken(), False: Taken()}
    list(creates(admin, "warm", 30))
    for block in range(BLOCKS):
        for bound in (False, True):
            bind(admin, bound=bound)
            before = cpu_milliseconds(pid)
            taken[bound].waits += creates(admin, f"run-{block}-{bound}".lower(), CREATES // BLOCKS)
            taken[bound].cpu += cpu_milliseconds(pid) - before
    return taken


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]


def main() -> None:
    if not find_program("etcd") or not find_program(API_SERVER):
        print("skipped: what the policies cost needs etcd and kube-apiserver (KUBEBUILDER_ASSETS)")
        return
    print(f"{'API server':<22}{'runtimes':>9}{'':>10}{'p50 ms':>9}{'p99 ms':>9}{'cpu ms':>9}")
    within = True
    for program in filter(find_program, (API_SERVER, OLDEST_API_SERVER)):
        plane = ControlPlane(program)
        try:
            plane.start()
            install_runtime(plane.admin, "default")
            install_policies(plane.admin)
            for runtimes in (1, 20):
                for number in range(1, runtimes):
                    install_runtime(plane.admin, "default", f"other-{number}")
                within &= report(program, runtimes, measure(plane.admin, plane.api_server_pid))
        finally:
            plane.stop()
    sys.exit(0 if within else f"the goal is {GOAL_MILLISECONDS} ms more at p99")


def report(program: str, runtimes: int, taken: dict[bool, Taken]) -> bool:
    """Print three lines; whether the goal is met."""
    figures = {bound: figures_of(taken[bound]) for bound in (False, True)}
    added = tuple(after - before for before, after in zip(figures[False], figures[True], strict=True))
    for label, (p50, p99, cpu) in (("without", figures[False]), ("with", figures[True]), ("added", added)):
        print(f"{program:<22}{runtimes:>9}{label:>10}{p50:>9.2f}{p99:>9.2f}{cpu:>9.2f}")
    return added[1] <= GOAL_MILLISECONDS


def figures_of(taken: Taken) -> tuple[float, float, float]:
    return percentile(taken.waits, 50), percentile(taken.waits, 99), taken.cpu / len(taken.waits)


if __name__ == "__main__":
    main()
