"""The worst objects that a user of one namespace can apply, and what each costs everyone else.

`python -m tests.benchmarks.hostile_bench [--share 5]`; needs an API server (KUBEBUILDER_ASSETS). For each
object: what the API server says and how long a create takes, with and without the admission policies; and, of what it
takes without them, how long the operator's event loop was held by one callback (its thread's CPU time, and by the
clock), the lease's oldest renewal, and how long until another run's status was written. With `--share 5` the operator
is stopped and continued so that it gets 5 % of a core.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.integration.cluster.admin import RUNS, AdminClient, ApiError
from tests.integration.cluster.control_plane import API_SERVER, ControlPlane, find_program
from tests.integration.cluster.policies import install_policies, remove_policies
from tests.integration.cluster.runs import install_runtime

GOAL_MILLISECONDS = 50.0
PATH = RUNS.format(namespace="default")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/rl-operator/leases/rl-operator"
PERIOD = 0.1
SECONDS = 120.0


def run(name: str, metadata: dict[str, Any] | None = None, **spec: Any) -> str:
    """Its JSON. `DEEP` in it stands for 70 lists in each other."""
    document = {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLTrainingRun",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"environment": "sort_digits", "runtime": "tiny", **spec},
    }
    return json.dumps(document).replace('"DEEP"', "[" * 70 + "1" + "]" * 70)


def keys(count: int, value: Any = 1, width: int = 0) -> dict[str, Any]:
    return {f"group_sise_{n:0{width}d}": value for n in range(count)}


def documents() -> dict[str, str]:
    """In several shapes, up to what fits into an object of etcd (1.5 MB)."""
    return {
        "10,000 unknown keys": run("keys", config=keys(10_000)),
        "3,000 unknown keys": run("keys", config=keys(3_000)),
        "draft, 8,000 keys": run("draft", suspend=True, config=keys(8_000, "x" * 40)),
        "256 unknown keys": run("keys", config=keys(256, "y" * 50)),
        "256 long unknown keys": run("keys", config=keys(256, 1, 110)),
        "70 deep": run("deep", config={"deep": "DEEP"}),
        "900 kB string": run("text", config={"tokenizer_name": "x" * 900_000}),
        "900 kB of 'password'": run("text", config={"tokenizer_name": ["password" * 112_000]}),
        "900 kB in strings": run("text", config=keys(180, "x" * 5_000)),
        "200 kB of 'password'": run("text", config=keys(24, ["password" * 1_000])),
        "400,000 numbers": run("list", config={"tokenizer_name": [1] * 400_000}),
        "250 lists of 1,000 lists": run("list", config=keys(250, [[]] * 1_000)),
        "200 kB, accepted": run("whole", suspend=True, trainer={}, config=keys(4, "x" * 49_000)),
        "9,500 values": run("values", config=keys(95, list(range(100)))),
        "250,000 empty maps": run("list", config={"tokenizer_name": [{}] * 250_000}),
        "1,000 wrong lists": run("list", config=keys(200, list(range(50)))),
        "30,000 labels": run("labels", {"labels": {f"a{n}": "" for n in range(30_000)}}),
        "20,000 annotations": run("labels", {"annotations": {f"a{n}": "" for n in range(20_000)}}),
        "30,000 finalizers": run("labels", {"finalizers": [f"example.com/a{n}" for n in range(30_000)]}),
    }


class Operator:
    """The program itself again, in a process of its own: the operator with a meter at its loop."""

    def __init__(self, kubeconfig: Path, share: int) -> None:
        command = [sys.executable, __file__, "--operator", str(kubeconfig)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin
        assert self._process.stdout
        self._in, self._out = self._process.stdin, self._process.stdout
        self._over = threading.Event()
        self._throttle = threading.Thread(target=self._throttled, args=(share,), daemon=True)

    def start(self) -> None:
        assert self._out.readline().startswith("ready"), "the operator did not start"
        self._throttle.start()

    def _throttled(self, share: int) -> None:
        """A duty cycle of signals: the operator runs for that share of each period."""
        while share < 100 and not self._over.is_set():
            self._process.send_signal(signal.SIGCONT)
            time.sleep(PERIOD * share / 100)
            self._process.send_signal(signal.SIGSTOP)
            time.sleep(PERIOD * (100 - share) / 100)

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def holds(self) -> tuple[float, float]:
        """Longest hold since the last question: milliseconds of CPU, and by the clock."""
        self._in.write("holds\n")
        self._in.flush()
        cpu, wall = self._out.readline().split()
        return float(cpu), float(wall)

    def close(self) -> None:
        self._over.set()
        self._process.kill()
        self._process.wait()


class HoldMeter:
    """The longest that one callback kept the loop's thread."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0
        original: Callable[[asyncio.Handle], None] = asyncio.Handle._run

        def metered(handle: asyncio.Handle) -> None:
            cpu, wall = time.thread_time(), time.perf_counter()
            original(handle)
            self.cpu = max(self.cpu, time.thread_time() - cpu)
            self.wall = max(self.wall, time.perf_counter() - wall)

        asyncio.Handle._run = metered  # type: ignore[method-assign, assignment]

    def take(self) -> str:
        text = f"{self.cpu * 1000:.1f} {self.wall * 1000:.1f}"
        self.cpu = self.wall = 0.0
        return text


def operate(kubeconfig: str) -> None:
    from rl_operator.__main__ import prepare_interpreter, run_operator
    from rl_operator.operator_settings import OperatorSettings

    prepare_interpreter()
    meter = HoldMeter()
    flags = ["--kubeconfig", kubeconfig, "--probe-port", "0", "--metrics-port", "0", "--operator-namespace",
             "rl-operator", "--progress-seconds", "0.5"]  # fmt: skip

    def answer() -> None:
        print("ready", flush=True)
        for _ in sys.stdin:
            print(meter.take(), flush=True)

    threading.Thread(target=answer, daemon=True).start()
    asyncio.run(run_operator(OperatorSettings.from_command_line(flags)))


def create(admin: AdminClient, text: str) -> tuple[float, str]:
    """Seconds, and what the API server says."""
    begin = time.perf_counter()
    try:
        admin._call("POST", PATH, json.loads(text), "application/json")
    except ApiError as error:
        return time.perf_counter() - begin, error.message.replace("\n", " ")
    return time.perf_counter() - begin, "created"


def until_told(admin: AdminClient, name: str, operator: Operator) -> tuple[float, str]:
    """Seconds until the run's status speaks of it."""
    begin = time.monotonic()
    while time.monotonic() < begin + SECONDS and operator.code is None:
        found = admin.get(f"{PATH}/{name}")
        if found.get("status", {}).get("message"):
            return time.monotonic() - begin, found["status"]["message"]
        time.sleep(0.02)
    return time.monotonic() - begin, f"no status; the operator ended with {operator.code}"


def rows(plane: ControlPlane, share: int, only: str) -> Iterator[tuple[str, ...]]:
    admin, chosen = plane.admin, {n: t for n, t in documents().items() if only in n}
    install_policies(admin)
    doors = {name: create(admin, text) for name, text in chosen.items()}
    for item in admin.items(PATH):
        admin.delete(f"{PATH}/{item['metadata']['name']}")
    remove_policies(admin)
    for name, text in chosen.items():
        seconds, said = create(admin, text)
        line = (name, f"{len(text) / 1000:.0f} kB", f"{doors[name][0]:.2f}", doors[name][1][:230], f"{seconds:.2f}")
        if said != "created":
            yield (*line, "", "", "", "", "refused: " + said[:200])
            continue
        run_name = json.loads(text)["metadata"]["name"]
        if admin.find(LEASE):
            admin.delete(LEASE)
        operator = Operator(plane.kubeconfig(), share)
        try:
            operator.start()
            bystander = json.loads(run("bystander", config={"group_sise": 1}))
            told, message = until_told(admin, run_name, operator)
            cpu, wall = operator.holds() if operator.code is None else (0, 0)
            admin.post(PATH, bystander)
            other, _ = until_told(admin, "bystander", operator)
            yield (*line, f"{cpu:.0f}", f"{wall:.0f}", f"{told:.1f}", f"{other:.1f}", message[:160])
        finally:
            operator.close()
            for each in (run_name, "bystander"):
                path = f"{PATH}/{each}"
                if admin.find(path):
                    admin.patch(path, {"metadata": {"finalizers": None}})
                    if admin.find(path):
                        admin.delete(path)


HEAD = ("object", "size", "policies s", "they say", "create s", "hold cpu ms", "hold ms", "told s", "other s", "status")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--operator")
    parser.add_argument("--share", type=int, default=100)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    if arguments.operator:
        return operate(arguments.operator)
    if not find_program("etcd") or not find_program(API_SERVER):
        return print("skipped: needs etcd and kube-apiserver (KUBEBUILDER_ASSETS)")
    plane = ControlPlane()
    try:
        plane.start()
        install_runtime(plane.admin, "tiny")
        print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
        for row in rows(plane, arguments.share, arguments.only):
            print("| " + " | ".join(row) + " |", flush=True)
    finally:
        plane.stop()


if __name__ == "__main__":
    main()
