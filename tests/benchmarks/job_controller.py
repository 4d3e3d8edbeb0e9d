"""Kubernetes' own Job controller, as the thing to compare with: so many Jobs, one plain pod each."""

import asyncio
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.load_client import Arrivals, LoadClient, for_each, load_client
from tests.benchmarks.meter import Meter, Span
from tests.integration.cluster.control_plane import ADMIN_TOKEN, ControlPlane, find_program
from tests.ports import free_port

PROGRAM = "kube-controller-manager"
NAMESPACE = "jobs"
FLAGS = ("--controllers", "job-controller", "--kube-api-qps", "1000", "--kube-api-burst", "1000")


def job(name: str) -> dict[str, object]:
    container = {"name": "main", "image": "i", "command": ["true"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


async def create_jobs(count: int) -> Span:
    """From the first Job's creation to the last one's pod, on a control plane of its own."""
    plane = ControlPlane()
    controller: subprocess.Popen[bytes] | None = None
    with tempfile.TemporaryDirectory(prefix="rl-job-controller-") as folder:
        try:
            plane.start()
            plane.admin.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            controller = _start(plane, Path(folder))
            async with load_client(plane.server, ADMIN_TOKEN) as client:
                return await _measure(client, count, lambda: Meter(controller.pid, plane))
        finally:
            if controller:
                controller.kill()
                controller.wait(10)
            plane.stop()


def _start(plane: ControlPlane, folder: Path) -> subprocess.Popen[bytes]:
    program = find_program(PROGRAM)
    assert program, PROGRAM
    command = [
        program, *FLAGS, "--kubeconfig", str(plane.kubeconfig(ADMIN_TOKEN)), "--leader-elect=false",
        "--bind-address", "127.0.0.1", "--secure-port", str(free_port()), "--cert-dir", str(folder),
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


async def _measure(client: LoadClient, count: int, meter_of: Callable[[], Meter]) -> Span:
    jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
    pods = Arrivals(lambda _: "created")
    following = asyncio.create_task(pods.follow(client, f"/api/v1/namespaces/{NAMESPACE}/pods", metadata_only=True))
    try:
        await client.post(jobs, job("warm-up"))
        await pods.until("created", 1, 60)
        meter = meter_of()
        await for_each((f"job-{number}" for number in range(count)), lambda name: client.post(jobs, job(name)))
        return meter.until(await pods.until("created", count + 1, 600))
    finally:
        following.cancel()
