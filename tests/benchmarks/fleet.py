"""One operator and many runs on a control plane of their own; their pods are played by another process."""

import asyncio
import contextlib
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

from tests.benchmarks.load_client import Arrivals, LoadClient, for_each, load_client
from tests.benchmarks.meter import Meter, Span, cpu_seconds
from tests.benchmarks.pod_player import TOTAL_STEPS
from tests.integration.cluster.admin import RUNS
from tests.integration.cluster.control_plane import (
    ADMIN_TOKEN,
    FORMER_TOKEN,
    OPERATOR_TOKEN,
    ROOT,
    ControlPlane,
)
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.runs import install_runtime
from tests.ports import free_port

NAMESPACE = "bench"
PATIENCE = 900.0


class Player:
    """The process that plays kubelets and trainers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.ended: dict[str, float] = {}
        """When the API server had taken a run's pod's end, by run."""

    async def listen(self) -> None:
        assert self._process.stdout
        async for line in self._process.stdout:
            run, moment = line.decode().split()
            self.ended[run] = float(moment)

    async def tell(self, command: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(command.encode() + b"\n")
        await self._process.stdin.drain()

    async def stop(self) -> None:
        self._process.kill()
        await self._process.wait()


class Fleet:
    """Counts from the start: `created` runs exist, `ended` of them have ended."""

    def __init__(self, plane: ControlPlane, client: LoadClient, player: Player) -> None:
        self.plane = plane
        self.player = player
        self._client = client
        self._path = RUNS.format(namespace=NAMESPACE)
        self._metrics_port = free_port()
        self.pods = Arrivals(lambda _: "created")
        self.runs = Arrivals(lambda run: run["status"].get("phase"))
        self.created = 0
        self.ended = 0
        self.operator = self._process(FORMER_TOKEN)

    def _process(self, token: str) -> OperatorProcess:
        return OperatorProcess(
            self.plane.kubeconfig(token), "--log-level", "warning",
            "--metrics-host", "127.0.0.1", "--metrics-port", str(self._metrics_port),
        )  # fmt: skip

    async def follow(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.player.listen())
            group.create_task(
                self.pods.follow(self._client, f"/api/v1/namespaces/{NAMESPACE}/pods", metadata_only=True)
            )
            group.create_task(self.runs.follow(self._client, self._path))

    # --- steps of many lives ------------------------------------------------------------------------------------
    async def create(self, count: int) -> Span:
        """Create runs at once; until the last one's pod is there."""
        names = [f"run-{number}" for number in range(self.created, self.created + count)]
        self.created += count
        meter = self._meter()
        await for_each(names, lambda name: self._client.post(self._path, run_manifest(name)))
        return meter.until(await self.pods.until("created", self.created, PATIENCE))

    async def start(self) -> Span:
        """Until all runs are Running."""
        return await self._step("run", "Running", self.created)

    async def end(self, count: int, rate: float = 0.0) -> Span:
        """End so many runs, so many a second; until their status says so."""
        self.ended += count
        return await self._step(f"end {count} {rate}", "Succeeded", self.ended)

    async def _step(self, command: str, phase: str, count: int) -> Span:
        meter = self._meter()
        await self.player.tell(command)
        return meter.until(await self.runs.until(phase, count, PATIENCE))

    def _meter(self) -> Meter:
        return Meter(self.operator.pid, self.plane)

    def lags(self, count: int) -> list[float]:
        """Of the last runs that ended: seconds from their pods' end to their status, sorted."""
        last = list(self.player.ended.items())[-count:]
        return sorted(self.runs.moments["Succeeded"][run] - moment for run, moment in last)

    async def truth(self) -> int:
        """How many runs say just what was played to them."""
        true = 0
        async for document in self._list():
            status = document["status"]
            ends = [attempt["reason"] for attempt in status["attempts"]]
            figures = (status["progress"]["step"], status["metrics"]["heldOut"]["value"])
            true += (status["phase"], ends, figures) == ("Succeeded", ["Succeeded"], (TOTAL_STEPS, 0.9))
        return true

    async def _list(self) -> AsyncIterator[dict[str, Any]]:
        token = ""
        while True:
            page = await asyncio.to_thread(self.plane.admin.get, self._path, limit="500", **{"continue": token})
            for document in page["items"]:
                yield document
            token = page["metadata"].get("continue", "")
            if not token:
                return

    # --- the operator's process ---------------------------------------------------------------------------------
    async def restart(self) -> float:
        """Kill it and start it again, now with its writes counted; seconds until nothing is left to look at."""
        self.operator.close()
        self.operator = self._process(OPERATOR_TOKEN)
        began = time.monotonic()
        await asyncio.to_thread(self.operator.start)
        async with asyncio.timeout(PATIENCE):
            while self.gauge('rl_operator_reconciles_total{kind="run",outcome="ok"}') < self.created - self.ended:
                await asyncio.sleep(0.05)
            while self.gauge('rl_operator_queue_depth{kind="run"}'):
                await asyncio.sleep(0.05)
        return time.monotonic() - began

    def gauge(self, name: str) -> float:
        """One of the operator's own metrics; 0 while it has none."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        return next((float(line.rsplit(maxsplit=1)[1]) for line in lines if line.startswith(name + " ")), 0.0)

    async def cpu_share(self, seconds: float) -> float:
        """Share of one core over the next seconds."""
        began, cpu = time.monotonic(), cpu_seconds(self.operator.pid)
        await asyncio.sleep(seconds)
        return (cpu_seconds(self.operator.pid) - cpu) / (time.monotonic() - began)

    def writes(self) -> int:
        """Of the operator since its restart, besides Events."""
        return sum(call.resource != "events" for call in self.plane.operator_writes(NAMESPACE))


def run_manifest(name: str) -> dict[str, Any]:
    spec = {"environment": "sort_digits", "runtime": "tiny", "config": {"total_steps": TOTAL_STEPS}}
    return {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLTrainingRun", "metadata": {"name": name}, "spec": spec}


@contextlib.asynccontextmanager
async def fleet() -> AsyncIterator[Fleet]:
    """A new control plane with one run, whose pod is there: everything is warm."""
    plane = ControlPlane()
    try:
        plane.start()
        install_runtime(plane.admin, "tiny")
        plane.admin.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        async with load_client(plane.server, ADMIN_TOKEN) as client, _player(plane) as player:
            fresh = Fleet(plane, client, player)
            try:
                async with asyncio.TaskGroup() as group:  # a failing watcher must not go unnoticed
                    following = group.create_task(fresh.follow())
                    fresh.operator.start()
                    await fresh.create(1)
                    yield fresh
                    following.cancel()
            finally:
                fresh.operator.close()
    finally:
        plane.stop()


@contextlib.asynccontextmanager
async def _player(plane: ControlPlane) -> AsyncIterator[Player]:
    command = [sys.executable, "-m", "tests.benchmarks.pod_player", plane.server, ADMIN_TOKEN, NAMESPACE]
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=ROOT)
    player = Player(process)
    try:
        yield player
    finally:
        await player.stop()
