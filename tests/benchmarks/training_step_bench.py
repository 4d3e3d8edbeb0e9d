"""One step of the demo, split: `python -m tests.benchmarks.training_step_bench`.

4 groups of 8 rollouts of the bundled model are sampled through the real SDK from a real Tinker service, scored, and
trained. Goals on 2 idle cores: a step at most 0.6 s, of it training at most 0.15 s; sampler and trainer at most 1e-5
apart on the tokens of the current policy.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import numpy as np
from tests.ports import free_port

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.chat_rendering import chat_renderer
from tinker_atropos.chat.sampling import SamplingSettings
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.environments.bundled.digits import Item, answer, prompt, split
from tinker_atropos.trainer.backend.policy import Sampler
from tinker_atropos.trainer.data.datums import build_batch
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP, Group, TokenSequence
from tinker_atropos.trainer.inference.ledger import Ledger
from tinker_atropos.trainer.reporting.step_metrics import training_metrics

GROUPS, GROUP_SIZE = 4, 8
CONFIG = TrainerSettings(lora_rank=16)
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Step:
    """Seconds of one step, and what it found."""

    sampling: float
    building: float
    training: float
    reward: float
    gap: float


async def rollouts_of(item: Item, sampler: Sampler, tokenizer: Tokenizer, ledger: Ledger, step: int) -> Group:
    prompt_ids = chat_renderer(tokenizer, "bundled").ids([{"role": "user", "content": prompt(item)}])
    samples = await sampler.sample(prompt_ids, GROUP_SIZE, SamplingSettings(max_tokens=16))
    sequences = []
    for sample in samples:
        ledger.record(prompt_ids, sample.tokens_T, sample.logprobs_T, step)
        length = len(prompt_ids) + len(sample.tokens_T)
        sequence = TokenSequence(
            tokens_T=np.concatenate([prompt_ids, sample.tokens_T]),
            generated_T=np.repeat([False, True], [len(prompt_ids), len(sample.tokens_T)]),
            logprobs_T=np.full(length, np.nan),
            policy_step_T=np.full(length, UNKNOWN_STEP),
            score=float(tokenizer.decode(sample.tokens_T) == answer(item)),
        )
        sequences.append(ledger.attribute(sequence).sequence)
    return Group(tuple(sequences), np.arange(GROUP_SIZE))


async def measure(steps: int) -> list[Step]:
    from tinker_atropos.trainer.backend.backend import TinkerBackend

    tokenizer, ledger = Tokenizer("bundled"), Ledger()
    backend = await TinkerBackend.open(CONFIG, {})
    training = await backend.create("bundled", {})
    sampler = await training.snapshot()
    items = iter(split().training)
    measured = []
    for step in range(steps):
        began = time.perf_counter()
        batch_items = [next(items) for _ in range(GROUPS)]
        groups = await asyncio.gather(*(rollouts_of(item, sampler, tokenizer, ledger, step) for item in batch_items))
        sampled = time.perf_counter()
        batch = build_batch(groups, CONFIG)
        built = time.perf_counter()
        if not batch.datums:
            continue
        output = await training.step([batch.datums], LEARNING_RATE)
        sampler = output.sampler
        trained = time.perf_counter()
        metrics = training_metrics(batch, output.logprobs, output.loss_sum, step)
        reward = float(np.mean([group.scores_R.mean() for group in groups]))
        measured.append(Step(sampled - began, built - sampled, trained - built, reward, metrics["logprobs/gap"]))
    await backend.close("success")
    return measured


def show(measured: list[Step]) -> None:
    steady = measured[2:]  # the first steps warm torch's allocator and the connections up

    def median(name: str) -> float:
        return float(statistics.median(getattr(step, name) for step in steady))

    total = statistics.median(step.sampling + step.building + step.training for step in steady)
    print(f"training step of {GROUPS * GROUP_SIZE} sequences, median of {len(steady)} (load {os.getloadavg()[0]:.1f})")
    print("| what | measured | goal |")
    print("|---|---|---|")
    print(f"| step | {total:.3f} s | <= 0.6 s |")
    print(f"| sampling | {median('sampling'):.3f} s | |")
    print(f"| trainer's own work | {median('building') * 1e3:.1f} ms | |")
    print(f"| forward_backward + optim_step + snapshot | {median('training'):.3f} s | <= 0.15 s |")
    print(f"| largest logprob gap, staleness 0 | {max(step.gap for step in measured):.1e} | <= 1e-5 |")
    early, late = (statistics.mean(step.reward for step in part) for part in (measured[:5], measured[-5:]))
    print(f"| reward, first 5 -> last 5 steps | {early:.2f} -> {late:.2f} | |")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=40)
    steps = arguments.parse_args().steps
    port = free_port()
    os.environ |= {
        "TINKER_API_KEY": "tml-bench",
        "TINKER_BASE_URL": f"http://127.0.0.1:{port}",
        "TINKER_TELEMETRY": "0",
    }
    with tempfile.TemporaryDirectory() as folder:
        service = subprocess.Popen(
            [
                *(sys.executable, "-c", "from tinker_service.service_command import main; main()"),
                *("--port", str(port), "--data", folder),
            ],
            stderr=subprocess.DEVNULL,
        )
        try:
            from tinker_atropos.trainer.backend.backend import wait_for_backend

            asyncio.run(wait_for_backend(os.environ["TINKER_BASE_URL"], 60))
            show(asyncio.run(measure(steps)))
        finally:
            service.terminate()
            service.wait(10)


if __name__ == "__main__":
    main()
