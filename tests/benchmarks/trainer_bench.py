"""The trainer's own work per step: `python -m tests.benchmarks.trainer_bench`. Prints a table; asserts nothing.

From the trajectory API's JSON answer to the datums that the SDK sends, with the ledger and the metrics in between, for
256 sequences of 512 tokens. The backend is not in it. Goal: at most 50 ms.
"""

import argparse
import asyncio
import gc
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import orjson

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.trainer.backend.lora_weights import to_tinker
from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.data.datums import build_batch
from tinker_atropos.trainer.inference.ledger import Ledger
from tinker_atropos.trainer.reporting.step_metrics import batch_metrics, collection_metrics, training_metrics
from tinker_atropos.trainer.trajectories.admission import Admission
from tinker_atropos.trainer.trajectories.batch_collector import Collected
from tinker_atropos.trainer.trajectories.deliveries import read_delivery
from tinker_atropos.trainer.update.loss_clips import clip_metrics

GROUPS, GROUP_SIZE, PROMPT, OUTPUT = 32, 8, 128, 384
VOCABULARY = 150_000
GOAL_MS = 50


def answer_of(step: int, ledger: Ledger, *, with_logprobs: bool) -> bytes:
    """A batch as the api sends it; what was sampled for it is in the ledger."""
    random = np.random.default_rng(step)
    groups = []
    for _ in range(GROUPS):
        prompt = random.integers(0, VOCABULARY, PROMPT)
        group: dict[str, Any] = {"tokens": [], "masks": [], "scores": [], "inference_logprobs": []}
        for _ in range(GROUP_SIZE):
            output = random.integers(0, VOCABULARY, OUTPUT)
            logprobs = -random.exponential(1.0, OUTPUT).astype(np.float32).astype(float)
            ledger.record(prompt, output, logprobs, step)
            group["tokens"].append([*prompt.tolist(), *output.tolist()])
            group["masks"].append([-100] * PROMPT + output.tolist())
            group["scores"].append(float(random.integers(0, 2)))
            group["inference_logprobs"].append([1.0] * PROMPT + logprobs.tolist())
        groups.append(group if with_logprobs else {**group, "inference_logprobs": None})
    head = {"ids": list(range(GROUPS)), "received_at": [time.time()] * GROUPS, "step": step}
    return b"\n".join(map(orjson.dumps, [head, *groups]))


class Stages:
    """Seconds of each stage, by step: on the clock, and of the processor, which neighbors lengthen less."""

    def __init__(self) -> None:
        self.clock: dict[str, list[float]] = defaultdict(list)
        self.processor: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        begun, begun_processor = time.perf_counter(), time.thread_time()
        yield
        self.processor[stage].append(time.thread_time() - begun_processor)
        self.clock[stage].append(time.perf_counter() - begun)


async def measure(steps: int, *, with_logprobs: bool) -> Stages:
    config, ledger, policy, stages = TrainerSettings(), Ledger(), CurrentPolicy(), Stages()
    policy.swap(Policy(0, sampler=None))  # type: ignore[arg-type]  # nothing here samples
    admission = Admission(ledger, policy, config)
    for step in range(steps):
        content = answer_of(step, ledger, with_logprobs=with_logprobs)
        gc.collect()
        with stages.timed("the api's JSON to arrays"):
            delivery = read_delivery(content, 0.0)
        assert delivery is not None
        with stages.timed("ledger, staleness"):
            admitted = [await admission.admit(group, step) for group in delivery.groups]
        collected = Collected(tuple(one.group for one in admitted), {}, 0, 0, 0, 0.0)
        with stages.timed("advantages, datums"):
            batch = build_batch(collected.groups, config)
        with stages.timed("tinker Datums"):
            sent = [to_tinker(datum, config.loss) for datum in batch.datums]
        logprobs = [datum.logprobs_T + 1e-3 for datum in batch.datums]
        with stages.timed("metrics"):
            collection_metrics(collected, batch)
            batch_metrics(batch, step)
            training_metrics(batch, logprobs, 1.0, step)
            clip_metrics(batch.datums, logprobs, config)
        del delivery, admitted, collected, batch, sent
    return stages


def show(title: str, stages: Stages) -> None:
    print(f"{title} (load {os.getloadavg()[0]:.1f})")
    print(f"{'what':<32}{'median ms':>10}{'best ms':>10}{'CPU ms':>10}{'goal ms':>10}")
    rows = {stage: (stages.clock[stage][1:], stages.processor[stage][1:]) for stage in stages.clock}  # [0] warms up
    whole = [[sum(parts) for parts in zip(*kind, strict=True)] for kind in zip(*rows.values(), strict=True)]
    for stage, (clock, processor) in {**rows, "a step": whole}.items():
        goal = f"<= {GOAL_MS}" if stage == "a step" else ""
        figures = (statistics.median(clock), min(clock), statistics.median(processor))
        print(f"{stage:<32}" + "".join(f"{seconds * 1e3:>10.1f}" for seconds in figures) + f"{goal:>10}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=15)
    steps = arguments.parse_args().steps
    size = f"trainer's own work, {GROUPS * GROUP_SIZE} sequences of {PROMPT + OUTPUT} tokens"
    for with_logprobs, what in ((True, "logprobs sent"), (False, "logprobs from the ledger")):
        show(f"{size}, {what}", asyncio.run(measure(steps, with_logprobs=with_logprobs)))


if __name__ == "__main__":
    main()
