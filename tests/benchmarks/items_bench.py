"""Groups per second of a run with 1, 2, 4 and 8 environment processes: `python -m tests.benchmarks.items_bench`.

Each process holds a lease and sends groups of 8 x 128 tokens to a real api process; another one takes batches of 4
groups and reports steps, with a checkpoint every 20. "without": as before items had positions. "with": each process
asks for positions, 8 at a time, says which it sends a group of, and the trainer asks for the position of a checkpoint.
"""

import argparse
import asyncio
import gzip
import os
import random
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from tests.benchmarks.trajectory_api_bench import CHECKPOINT_STEPS, REGISTRATION, api_process, until_ready, worker_pid

PROCESSES = (1, 2, 4, 8)
GROUP_SIZE, TOKENS = 8, 128
CONNECTIONS = 8
"""Of one process: groups that it sends at the same time."""

ASKED, EPOCH_SIZE = 8, 10_000


def group() -> dict[str, Any]:
    rng = random.Random(0)
    tokens = [[rng.randrange(150_000) for _ in range(TOKENS)] for _ in range(GROUP_SIZE)]
    logprobs = [[-rng.random() for _ in row] for row in tokens]
    return {"tokens": tokens, "masks": tokens, "scores": [1.0, 0.0] * 4, "inference_logprobs": logprobs, "env_id": 0}


async def send(url: str, index: int, seconds: float, *, positions: bool) -> int:
    """One environment process: the groups that were accepted."""
    holder, sent, held, sample = f"process-{index}", 0, list[int](), group()
    lease = {"state": "working", "id": holder, "index": index, "ttl_seconds": 600}
    asking, until = asyncio.Lock(), time.monotonic() + seconds
    async with aiohttp.ClientSession(url, raise_for_status=True) as client:
        await client.put("/rl/lease/environment", json=lease)

        async def next_position() -> int:
            async with asking:
                if not held:
                    asked = {"id": holder, "index": index, "count": ASKED, "epoch_size": EPOCH_SIZE}
                    async with client.post("/rl/items", json=asked) as answer:
                        held.extend((await answer.json())["positions"])
                return held.pop(0)

        async def connection() -> None:
            nonlocal sent
            while time.monotonic() < until:
                item = {"position": await next_position(), "holder": holder} if positions else {}
                body = gzip.compress(orjson.dumps(sample | {"group_overrides": {"environment": index, **item}}), 1)
                headers = {"content-encoding": "gzip", "idempotency-key": str(uuid.uuid4())}
                await client.post("/scored_data", data=body, headers=headers)
                sent += 1

        await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))
    return sent


async def train(url: str, _index: int, seconds: float, *, positions: bool) -> int:
    """The trainer: the steps that it could train."""
    steps, until = 0, time.monotonic() + seconds
    async with aiohttp.ClientSession(url, raise_for_status=True) as client:
        while time.monotonic() < until:
            async with client.get(f"/batch?wait=1&step={steps}") as answer:
                if not (await answer.read()).startswith(b'{"batch":['):
                    continue
            steps += 1
            if positions and steps % CHECKPOINT_STEPS == 0:
                await client.get(f"/rl/items/state?step={steps}")
            covered = steps - steps % CHECKPOINT_STEPS
            await client.post("/rl/progress", json={"steps_trained": steps, "checkpoint_step": covered})
    return steps


def in_a_process(work: Callable[..., Awaitable[int]], url: str, index: int, seconds: float, positions: bool) -> int:
    async def counted() -> int:
        return await work(url, index, seconds, positions=positions)

    return asyncio.run(counted())


async def register(url: str) -> None:
    async with aiohttp.ClientSession(url, raise_for_status=True) as client:
        await until_ready(client)
        await client.post("/register", json=REGISTRATION)


def cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measured(processes: int, seconds: float, *, positions: bool) -> tuple[float, float, float]:
    """Groups that were accepted, and that were trained, per second, and the api's CPU of one, in ms."""
    with (
        tempfile.TemporaryDirectory() as folder,
        api_process(folder) as (url, ops_url),
        ProcessPoolExecutor(processes + 1, mp_context=get_context("spawn")) as pool,
    ):
        asyncio.run(register(url))
        trained = pool.submit(in_a_process, train, url, 0, seconds, positions)
        sent = [pool.submit(in_a_process, send, url, index, seconds, positions) for index in range(processes)]
        accepted, steps = sum(each.result() for each in sent), trained.result()
        used = cpu_seconds(asyncio.run(worker_pid(ops_url)))
        return accepted / seconds, 4 * steps / seconds, 1e3 * used / accepted


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=10)
    arguments.add_argument("--without", action="store_true", help="only without positions: an api that deals none")
    options = arguments.parse_args()
    print("| processes | positions | groups/s accepted | groups/s trained | api CPU |\n|---|---|---|---|---|")
    for processes in PROCESSES:
        for positions in (False,) if options.without else (False, True):
            accepted, trained, used = measured(processes, options.seconds, positions=positions)
            named = "with" if positions else "without"
            row = f"| {processes} | {named} | {accepted:.0f} | {trained:.0f} | {used:.2f} ms/group |"
            print(row, flush=True)


if __name__ == "__main__":
    main()
