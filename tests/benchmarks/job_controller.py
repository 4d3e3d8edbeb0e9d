"""Kubernetes' own Job controller, as the thing to compare with: so many Jobs, one plain pod each."""

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path

from tests.benchmarks.load_client import Arrivals, LoadClient, for_each, load_client
from tests.integration.cluster.control_plane import ADMIN_TOKEN, ControlPlane, find_program, free_port

PROGRAM = "kube-controller-manager"
NAMESPACE = "jobs"
FLAGS = ("--controllers", "job-controller", "--kube-api-qps", "1000", "--kube-api-burst", "1000")


def job(name: str) -> dict[str, object]:
    container = {"name": "main", "image": "i", "command": ["true"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


async def seconds_for_jobs(count: int) -> float:
    """From the first Job's creation to the last one's pod, on a control plane of its own."""
    plane = ControlPlane()
    process: subprocess.Popen[bytes] | None = None
    with tempfile.TemporaryDirectory(prefix="rl-job-controller-") as folder:
        try:
            plane.start()
            plane.admin.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            process = _start(plane, Path(folder))
            async with load_client(plane.server, ADMIN_TOKEN) as client:
                return await _measure(client, count)
        finally:
            if process:
                process.kill()
                process.wait(10)
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


async def _measure(client: LoadClient, count: int) -> float:
    jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
    pods = Arrivals(lambda _: "created")
    following = asyncio.create_task(pods.follow(client, f"/api/v1/namespaces/{NAMESPACE}/pods", metadata_only=True))
    try:
        await client.post(jobs, job("warm-up"))
        await pods.until("created", 1, 60)
        began = time.monotonic()
        await for_each((f"job-{number}" for number in range(count)), lambda name: client.post(jobs, job(name)))
        return await pods.until("created", count + 1, 600) - began
    finally:
        following.cancel()
