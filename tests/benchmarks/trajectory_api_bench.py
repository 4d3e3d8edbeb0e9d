"""Groups per second that the trajectory API takes and hands out: `python -m tests.benchmarks.trajectory_api_bench`.

32 connections send groups of 8 x 512 tokens (gzip, as BaseEnv does) to a real api process, while a trainer takes
batches of 4 groups and reports steps. Goal: at least 200 groups/s, p99 of a POST at most 100 ms, on 2 cores, and as
much memory at the end as after a third of the time.
"""

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import aiohttp
from tests.ports import free_port

GROUP_SIZE, TOKENS, BATCH_GROUPS, CHECKPOINT_STEPS = 8, 512, 4, 20
REGISTRATION = {
    "wandb_group": "g",
    "wandb_project": "p",
    "max_token_len": 1024,
    "checkpoint_dir": "",
    "save_checkpoint_interval": 0,
    "starting_step": 0,
    "num_steps": 10**6,
    "batch_size": BATCH_GROUPS * GROUP_SIZE,
}


def encoded_groups(count: int) -> list[bytes]:
    """Compressed beforehand: the client's gzip (10 ms a group) is not what is measured."""
    rng = random.Random(0)
    groups = []
    for _ in range(count):
        tokens = [[rng.randrange(150_000) for _ in range(TOKENS)] for _ in range(GROUP_SIZE)]
        group = {
            "tokens": tokens,
            "masks": [[-100] * 128 + row[128:] for row in tokens],
            "scores": [rng.random() for _ in range(GROUP_SIZE)],
            "inference_logprobs": [[1.0] * 128 + [-rng.random() for _ in row[128:]] for row in tokens],
            "env_id": 0,
        }
        groups.append(gzip.compress(json.dumps(group).encode(), compresslevel=6))
    return groups


async def send(
    client: aiohttp.ClientSession, bodies: list[bytes], until: float, latencies: list[float], interval: float
) -> None:
    """One connection: a POST every `interval` seconds, or back to back when it is 0."""
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    while time.perf_counter() < until:
        headers["idempotency-key"] = str(uuid.uuid4())  # equal groups are sent often here, and are not repeats
        started = time.perf_counter()
        async with client.post("/scored_data", data=random.choice(bodies), headers=headers) as answer:
            answer.raise_for_status()
            await answer.read()
        latencies.append(time.perf_counter() - started)
        await asyncio.sleep(max(0.0, started + interval - time.perf_counter()))


async def train(client: aiohttp.ClientSession, stop: asyncio.Event) -> int:
    steps = 0
    while not stop.is_set():
        async with client.get(f"/batch?wait=1&step={steps}") as answer:
            full = (await answer.read()).startswith(b'{"batch":[')
        if full:
            steps += 1
            covered = steps - steps % CHECKPOINT_STEPS
            await client.post("/rl/progress", json={"steps_trained": steps, "checkpoint_step": covered})
    return steps


async def worker_pid(ops_url: str) -> int:
    async with aiohttp.ClientSession(ops_url) as ops, ops.get("/status") as answer:
        return int((await answer.json())["worker"]["pid"])


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


async def measure(url: str, ops_url: str, connections: int, seconds: float, rate: float) -> int:
    """Print one row; returns the number of groups sent. `rate` in groups/s; 0: as fast as they are answered."""
    bodies = encoded_groups(16)
    async with aiohttp.ClientSession(url) as client:
        await until_ready(client)
        await client.post("/register", json=REGISTRATION, raise_for_status=True)
        stop, latencies = asyncio.Event(), list[float]()
        trainer = asyncio.create_task(train(client, stop))
        until = time.perf_counter() + seconds
        interval = connections / rate if rate else 0.0
        sending = asyncio.gather(*(send(client, bodies, until, latencies, interval) for _ in range(connections)))
        await asyncio.sleep(seconds / 3)
        worker = await worker_pid(ops_url)
        early = resident_mib(worker)
        await sending
        late = resident_mib(worker)
        stop.set()
        steps = await trainer
    offered = f"{rate:.0f} groups/s offered" if rate else "saturated"
    quantiles = statistics.quantiles(latencies, n=100)
    print(
        f"| {offered} | {len(latencies) / seconds:.0f} groups/s | {steps / seconds:.0f} batches/s ",
        end="",
    )
    print(f"| p50 {quantiles[49] * 1e3:.0f} ms | p99 {quantiles[98] * 1e3:.0f} ms ", end="")
    print(f"| memory {early:.0f} -> {late:.0f} MiB ", end="")
    return len(latencies)


async def until_ready(client: aiohttp.ClientSession) -> None:
    deadline = time.perf_counter() + 30
    while time.perf_counter() < deadline:
        try:
            await client.get("/")
        except aiohttp.ClientConnectionError:
            await asyncio.sleep(0.05)
        else:
            return
    raise SystemExit("the api did not answer within 30 s")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--connections", type=int, default=32)
    arguments.add_argument("--seconds", type=float, default=10)
    options = arguments.parse_args()
    for rate in (200.0, 0.0):
        with tempfile.TemporaryDirectory() as folder:
            run_once(folder, options.connections, options.seconds, rate)


@contextlib.contextmanager
def api_process(folder: str) -> Iterator[tuple[str, str]]:
    """Its URL, and that of its ops port."""
    port = free_port()
    ops_port = free_port()
    url, ops_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{ops_port}"
    env_vars = {**os.environ, "RL_API_URL": url, "RL_OPS_HOST": "127.0.0.1", "RL_OPS_PORT": str(ops_port)}
    command = [sys.executable, "-c", "from tinker_atropos.cli import main; main()", "api", "--data", folder]
    with subprocess.Popen(command, env=env_vars, stderr=subprocess.DEVNULL) as api:
        try:
            yield url, ops_url
        finally:
            api.terminate()


def run_once(folder: str, connections: int, seconds: float, rate: float) -> None:
    used_before = cpu_seconds_of_children()
    with api_process(folder) as (url, ops_url):
        groups = asyncio.run(measure(url, ops_url, connections, seconds, rate))
    print(f"| api CPU {(cpu_seconds_of_children() - used_before) / groups * 1e3:.1f} ms/group |")


def cpu_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
