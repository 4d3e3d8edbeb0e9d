"""The operator against a real API server: `python -m tests.benchmarks.operator_bench`.

Latency from apply to the pod's creation (one run in flight), and the operator's memory with few runs; thousands are
measured by scale_bench.py. Needs etcd and kube-apiserver (KUBEBUILDER_ASSETS or PATH).
"""

import argparse
import http.client
import json
import queue
import ssl
import statistics
import threading
import time

from tests.integration.cluster.control_plane import ADMIN_TOKEN, HOW_TO_GET, ControlPlane, find_program
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace, install_runtime

SUCCEEDED = End(0, result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS, metrics={"heldOut": {"value": 0.9}}))
SETTLE_SECONDS = 3.0


class PodWatch:
    """Tells of new pods the moment the API server does."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.seen: queue.Queue[tuple[str, float]] = queue.Queue()
        context = ssl._create_unverified_context()
        self._connection = http.client.HTTPSConnection("127.0.0.1", plane.port, context=context)
        path = f"/api/v1/namespaces/{namespace}/pods?watch=true&timeoutSeconds=3600"
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
        self._response = self._connection.getresponse()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._response:
            event = json.loads(line)
            if event["type"] == "ADDED":
                self.seen.put((event["object"]["metadata"]["name"], time.perf_counter()))


def measure_latency(plane: ControlPlane, runs: RunsNamespace, count: int) -> list[float]:
    """Milliseconds from the apply's request to the pod's event, each run alone; every run ends in success."""
    watch = PodWatch(plane, runs.namespace)
    latencies = []
    for number in range(count):
        began = time.perf_counter()
        runs.apply(f"run-{number}")
        pod, created = watch.seen.get(timeout=30)
        latencies.append((created - began) * 1000)
        runs.kubelet.start(pod)
        runs.kubelet.work(pod)
        runs.until_phase("Running", f"run-{number}")
        runs.kubelet.end(pod, "Succeeded", trainer=SUCCEEDED)
        runs.until_released(pod)
    return latencies


def finish_many(runs: RunsNamespace, first: int, last: int) -> None:
    """Bring runs first..last-1 to their success, all at once."""
    names = [f"run-{number}" for number in range(first, last)]
    for name in names:
        runs.apply(name)
    for name in names:
        runs.kubelet.end(runs.until_pod(name=name), "Succeeded", trainer=SUCCEEDED)
    for name in names:
        runs.until_phase("Succeeded", name)


def row(what: str, measured: str, goal: str) -> None:
    print(f"| {what} | {measured} | {goal} |", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--lives", type=int, default=200, help="runs whose latency is measured")
    arguments.add_argument("--finished", type=int, default=1000, help="finished runs for the memory figure")
    options = arguments.parse_args()
    if not all(find_program(name) for name in ("etcd", "kube-apiserver")):
        print(f"operator_bench is skipped: it {HOW_TO_GET}")
        return
    plane = ControlPlane()
    try:
        plane.start()
        measure(plane, options.lives, options.finished)
    finally:
        plane.stop()


def measure(plane: ControlPlane, lives: int, finished: int) -> None:
    install_runtime(plane.admin, "tiny")
    plane.admin.post("/api/v1/namespaces", {"metadata": {"name": "bench"}})
    runs = RunsNamespace(plane, "bench")
    operator = OperatorProcess(plane.kubeconfig(), "--log-level", "warning")
    print("| what | measured | goal |\n|---|---|---|")
    try:
        operator.start()
        time.sleep(SETTLE_SECONDS)
        row("operator RSS, idle", f"{operator.resident_mebibytes():.0f} MiB", "75")
        latencies = sorted(measure_latency(plane, runs, lives))
        p50, p99 = statistics.median(latencies), latencies[int(len(latencies) * 0.99) - 1]
        row(f"apply -> pod created, p50 / p99 of {lives}", f"{p50:.0f} / {p99:.0f} ms", "25 / 100")
        finish_many(runs, lives, finished)
        wait_for("all pods are released", lambda: not any(p["metadata"].get("finalizers") for p in runs.kubelet.pods()))
        time.sleep(SETTLE_SECONDS)
        row(f"operator RSS, {finished} finished runs", f"{operator.resident_mebibytes():.0f} MiB", "95")
        operator.kill()
        began = time.perf_counter()
        operator.start()
        ready = time.perf_counter() - began
        time.sleep(SETTLE_SECONDS)
        row(f"the same after a restart (ready in {ready:.1f} s)", f"{operator.resident_mebibytes():.0f} MiB", "95")
    finally:
        operator.close()


if __name__ == "__main__":
    main()
