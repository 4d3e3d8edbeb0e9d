"""What the trainer's inference server passes on: `python -m tests.benchmarks.inference_bench`.

Tokens per second through its OpenAI route, next to those that the same Tinker service gives to the unmodified SDK with
as many requests at once: 1, 32 and 512, by turns. Goal: at least 95 % of the service's own. Asserts nothing.
"""

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import tinker
from tests.benchmarks.inference_process import InferenceProcess, inference_server
from tests.benchmarks.meter import Stopwatch
from tests.benchmarks.offered_load import Load, Wanted, equal, sample, tokens_of
from tests.benchmarks.tinker_process import TinkerProcess, tinker_service

VOCABULARY = 512
DEADLINE = 180.0
WAIT = 60
AT_ONCE = {1: (16, 3), 32: (128, 3), 512: (512, 1)}
"""How many requests there are, and how many turns."""


@dataclass(frozen=True)
class Turn:
    """Tokens per second, and CPU milliseconds per 1,000 tokens: of the service and of who asks it."""

    tokens: float
    service: float
    asking: float


class Sides:
    def __init__(self, service: TinkerProcess, inference: InferenceProcess, sampler: tinker.SamplingClient) -> None:
        self._service, self._inference, self._sampler = service, inference, sampler

    def direct(self, load: Load, at_once: int) -> Turn:
        """The SDK asks, in this process."""
        return self._turn(load, os.getpid(), sample(self._sampler, load, at_once, DEADLINE))

    def passed_on(self, load: Load, at_once: int) -> Turn:
        """The inference server asks."""
        return self._turn(load, self._inference.pid, completed(self._inference.url, load, at_once))

    def _turn(self, load: Load, asking_pid: int, work: Coroutine[Any, Any, list[int]]) -> Turn:
        service, asking = Stopwatch(self._service.pid), Stopwatch(asking_pid)
        lengths = asyncio.run(work)
        used, cpu = service.read(), asking.read().cpu
        tokens = tokens_of(load)
        assert sum(lengths) == tokens
        return Turn(tokens / used.seconds, used.cpu / tokens * 1e6, cpu / tokens * 1e6)


async def completed(url: str, load: Load, at_once: int) -> list[int]:
    """Through `/v1/completions`; how many tokens each got."""
    connector, free = aiohttp.TCPConnector(limit=0), asyncio.Semaphore(at_once)

    async def one(client: aiohttp.ClientSession, wanted: Wanted) -> int:
        body = {"model": "bundled", "prompt": wanted.prompt, "max_tokens": wanted.length, "ignore_eos": True}
        async with free, client.post(f"{url}/v1/completions", json=body) as answer:
            answer.raise_for_status()
            return int((await answer.json())["usage"]["completion_tokens"])

    async with asyncio.timeout(DEADLINE), aiohttp.ClientSession(connector=connector) as client:
        return await asyncio.gather(*(one(client, wanted) for wanted in load))


def rows(sides: Sides, length: int) -> Iterator[str]:
    for at_once, (count, turns) in AT_ONCE.items():
        load = equal(count, length, VOCABULARY)
        pairs = [(sides.direct(load, at_once), sides.passed_on(load, at_once)) for _ in range(turns)]
        direct, passed_on = (
            Turn(*(statistics.median(getattr(turn, name) for turn in side) for name in ("tokens", "service", "asking")))
            for side in zip(*pairs, strict=True)
        )
        share = statistics.median(through.tokens / own.tokens for own, through in pairs)
        yield (
            f"{at_once:>8}{length:>8}{direct.tokens:>11.0f}{passed_on.tokens:>11.0f}{share:>8.0%}  >= 95 %"
            f"{direct.service:>13.0f}{passed_on.service:>9.0f}{direct.asking:>10.0f}{passed_on.asking:>10.0f}"
        )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--tokens", type=int, nargs="+", default=[8, 64], help="of each answer")
    lengths = arguments.parse_args().tokens
    began = time.monotonic()
    with tinker_service() as service, inference_server(service) as inference:
        client = service.client()
        training = client.create_lora_training_client("bundled", rank=16, seed=0).result(WAIT)
        sides = Sides(service, inference, training.save_weights_and_get_sampling_client().result(WAIT))
        for side in (sides.direct, sides.passed_on):
            side(equal(32, 8, VOCABULARY), 32)  # warms up
        print(f"inference, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print(f"{'requests':>8}{'tokens':>8}{'tokens/s':>22}{'':>17}{'CPU ms per 1,000 tokens':>43}")
        print(f"{'at once':>8}{'each':>8}{'service':>11}{'passed on':>11}{'share':>8}  goal  "
              f"{'service':>13}{'... then':>9}{'SDK':>10}{'inference':>10}")  # fmt: skip
        for length in lengths:
            for row in rows(sides, length):
                print(row, flush=True)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
