"""Kubelets and trainers of many pods, played by one process: `python -m tests.benchmarks.pod_player SERVER TOKEN NS`.

It reads commands from its input, a line each:

    run             bind every pod that is there or comes, and make all its containers ready
    serve           answer at the pods' ops ports from now on, with figures that move
    end COUNT RATE  bring so many running pods to their success, so many a second (0: as fast as it goes)

and writes a line for each end: the run's name and the `time.monotonic()` at which the API server had taken it.
"""

import argparse
import asyncio
import contextlib
import json
import resource
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.load_client import LoadClient, for_each, load_client
from tests.integration.cluster.kubelet import API, ENVIRONMENT, NODE, TRAINER, End, result, running
from tests.integration.cluster.trainer import OPS_PORT

from rl_operator.api.names import ATTEMPT_LABEL, RUN_LABEL, RUN_UID_LABEL

TOTAL_STEPS = 1000
ADDRESSES = [f"127.77.{number // 250}.{number % 250 + 1}" for number in range(1000)]
"""Pods beyond the thousandth share them: nobody tells them apart by what they answer."""
AT_ONCE = 16
STEP_SECONDS = 5.0


@dataclass(frozen=True)
class Pod:
    name: str
    run: str
    address: str


class PodPlayer:
    def __init__(self, client: LoadClient, namespace: str) -> None:
        self._client = client
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._created: asyncio.Queue[Pod] = asyncio.Queue()
        self._running: deque[Pod] = deque()
        self._may_run = asyncio.Event()
        self._seen: set[str] = set()

    async def play(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            for _ in range(AT_ONCE):
                group.create_task(self._start_pods())
            await self._obey(group)

    async def _obey(self, group: asyncio.TaskGroup) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async for line in reader:
            match line.decode().split():
                case ["run"]:
                    self._may_run.set()
                case ["serve"]:
                    await serve_trainers()
                case ["end", count, rate]:
                    group.create_task(self._end(int(count), float(rate)))

    async def _watch(self) -> None:
        async for kind, pod in self._client.watch(self._pods, metadata_only=True):
            metadata = pod["metadata"]
            if kind == "ADDED" and metadata["name"] not in self._seen:
                address = ADDRESSES[len(self._seen) % len(ADDRESSES)]
                self._seen.add(metadata["name"])
                labels = metadata["labels"]
                _WHOSE[address] = {"runUid": labels[RUN_UID_LABEL], "attempt": int(labels[ATTEMPT_LABEL])}
                self._created.put_nowait(Pod(metadata["name"], labels[RUN_LABEL], address))

    async def _start_pods(self) -> None:
        await self._may_run.wait()
        while True:
            pod = await self._created.get()
            binding = {"metadata": {"name": pod.name}, "target": {"kind": "Node", "name": NODE}}
            await self._client.post(f"{self._pods}/{pod.name}/binding", binding)
            await self._write(
                pod, status_of("Running", {name: running(ready=True) for name in CONTAINERS}, pod.address)
            )
            self._running.append(pod)

    async def _end(self, count: int, rate: float) -> None:
        began, pods = time.monotonic(), [self._running.popleft() for _ in range(count)]

        async def end(numbered: tuple[int, Pod]) -> None:
            number, pod = numbered
            if rate:
                await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            await self._write(pod, ENDED)
            print(pod.run, time.monotonic(), flush=True)

        await for_each(enumerate(pods), end, AT_ONCE)

    async def _write(self, pod: Pod, status: dict[str, Any]) -> None:
        await self._client.patch(f"{self._pods}/{pod.name}/status", {"status": status})


CONTAINERS = (API, TRAINER, ENVIRONMENT)


def status_of(phase: str, states: dict[str, dict[str, Any]], address: str | None = None) -> dict[str, Any]:
    rest = {"image": "i", "imageID": "i", "restartCount": 0, "started": True}
    statuses = {name: {"name": name, **rest, **state} for name, state in states.items()}
    status = {
        "phase": phase,
        "initContainerStatuses": [statuses.pop(API)],
        "containerStatuses": list(statuses.values()),
    }
    return {**status, "podIP": address} if address else status


SUCCESS = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS, metrics={"heldOut": {"value": 0.9}})
ENDS = {TRAINER: End(0, SUCCESS)}
ENDED = status_of("Succeeded", {name: {"state": ENDS.get(name, End()).state, "ready": False} for name in CONTAINERS})


_WHOSE: dict[str, dict[str, Any]] = {}
"""By address: how the trainer there says whose it is."""


async def serve_trainers() -> None:
    """`/status` and `/history` of a trainer at the ops port of every address."""
    began = time.monotonic()
    answers = {b"/status": figures, b"/history": history}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                told = answers.get(request.split(maxsplit=2)[1])
                whose = _WHOSE.get(writer.get_extra_info("sockname")[0], {})
                body = json.dumps(whose | told(time.monotonic() - began)).encode() if told else b""
                head = f"HTTP/1.1 {'200 OK' if told else '404 Not Found'}\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
        writer.close()

    await asyncio.start_server(answer, ADDRESSES, OPS_PORT)


def figures(seconds: float) -> dict[str, Any]:
    """Of a trainer that has trained for this long."""
    step = _step(seconds)
    metrics = {name: value for name, value in _point(step).items() if name != "step"}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    counts = {"phase": "training", "step": step, "totalSteps": TOTAL_STEPS, "secondsPerStep": STEP_SECONDS}
    return {**counts, "lastStepAt": now, "metrics": metrics}


def history(seconds: float) -> dict[str, Any]:
    return {"points": [_point(step) for step in range(1, _step(seconds) + 1)]}


def _step(seconds: float) -> int:
    return min(int(seconds / STEP_SECONDS), TOTAL_STEPS - 1)


def _point(step: int) -> dict[str, float]:
    return {"step": step, "rolloutReward": round(0.2 + step / 2 / TOTAL_STEPS, 4), "loss": round(1 / (step + 1), 4)}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("server", "token", "namespace"):
        parser.add_argument(name)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    async with load_client(options.server, options.token) as client:
        await PodPlayer(client, options.namespace).play()


if __name__ == "__main__":
    asyncio.run(main())
