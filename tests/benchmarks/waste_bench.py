"""What a run costs beyond the necessary work: `python -m tests.benchmarks.waste_bench`.

The demo's run as plain processes: the api, the trainer and the environment against a Tinker service. Then the same
amount of work alone, through the same SDK: as many rollouts sampled with as many requests at once, and as many batches
trained. The first divided by the sum of the second is what coordination costs. Evaluations are not in either side.
"""

import argparse
import asyncio
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.conftest import TinkerServiceProcess, running_tinker_service
from tests.integration.training.conftest import Container, TrainingHalf, eventually, training_half

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.chat_rendering import chat_renderer
from tinker_atropos.chat.sampling import SamplingSettings
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.environments.bundled.digits import prompt, split
from tinker_atropos.trainer.backend.backend import TinkerBackend
from tinker_atropos.trainer.backend.policy import Sampler
from tinker_atropos.trainer.data.datums import Datum

GROUP_SIZE, BATCH_SIZE, OFFPOLICY = 8, 32, 3
ENV = {
    "group_size": GROUP_SIZE,
    "batch_size": BATCH_SIZE,
    "max_token_length": 32,
    "max_batches_offpolicy": OFFPOLICY,
    "steps_per_eval": 1_000_000,
}
RANK = 16
TINKER = {"lora_rank": RANK, "learning_rate": 1e-3, "save_checkpoint_interval": 1_000_000}
AT_ONCE = OFFPOLICY * BATCH_SIZE // GROUP_SIZE


@dataclass(frozen=True)
class RunFigures:
    """`seconds` from the first step's begin to the last one's end."""

    seconds: float
    points: list[dict[str, float]]
    books: dict[str, Any]
    filtered_tokens: float
    starts: dict[str, float]


async def run(folder: Path, service: TinkerServiceProcess, steps: int) -> RunFigures:
    starts: dict[str, float] = {}
    async with training_half(folder, service) as half:
        config = half.write_config(env={**ENV, "total_steps": steps}, tinker=TINKER)
        began = time.perf_counter()
        await half.start_api()
        starts["api"] = time.perf_counter() - began
        began = time.perf_counter()
        trainer = await half.start_trainer(config)
        await half.ready(trainer)
        starts["trainer"] = time.perf_counter() - began
        began = time.perf_counter()
        environment = await half.start("environment", "sort_digits", "serve", "--config", str(config))
        await eventually("the environment samples", lambda: sampling(half, environment))
        starts["environment"] = time.perf_counter() - began
        status = await last_status(half, trainer, steps)
        points = (await half.client.get(f"{trainer.ops_url}/history")).json()["points"]
        assert await trainer.exit_code() == 0, trainer.log
        filtered = await filtered_tokens(half)
        # The first step waits for the environment to start and to evaluate the baseline.
        steady = points[1:]
        return RunFigures(sum(point["time/step"] for point in steady), steady, status["books"], filtered, starts)


async def sampling(half: TrainingHalf, environment: Container) -> bool:
    """The environment has asked for its first sample: the baseline's."""
    return str((await half.status(environment))["phase"]).startswith(("evaluating", "making"))


async def filtered_tokens(half: TrainingHalf) -> float:
    """Tokens of groups that the environment did not send: all their rewards were equal."""
    answer = (await half.client.get(f"{half.env_vars['RL_API_URL']}/rl/metrics?after=0")).json()
    name = "env/tokens_filtered"
    return max((record["metrics"][name] for record in answer["records"] if name in record["metrics"]), default=0.0)


async def last_status(half: TrainingHalf, trainer: Container, steps: int) -> dict[str, Any]:
    """The status once the last step is trained: sampling goes on for the final evaluation, counted separately."""

    async def trained() -> dict[str, Any] | None:
        status = await half.status(trainer)
        return status if status["step"] == steps else None

    last: dict[str, Any] = await eventually("all steps are trained", trained, seconds=600)
    return last


async def sampling_alone(sampler: Sampler, tokenizer: Tokenizer, rollouts: int) -> float:
    """Seconds to sample so many rollouts, `AT_ONCE` groups in flight."""
    items = iter(split().training * (1 + rollouts // GROUP_SIZE // len(split().training)))
    free = asyncio.Semaphore(AT_ONCE)

    async def group() -> None:
        prompt_ids = chat_renderer(tokenizer, "bundled").ids([{"role": "user", "content": prompt(next(items))}])
        async with free:
            await sampler.sample(prompt_ids, GROUP_SIZE, SamplingSettings(max_tokens=16))

    await group()
    began = time.perf_counter()
    await asyncio.gather(*(group() for _ in range(rollouts // GROUP_SIZE)))
    return time.perf_counter() - began


async def alone(rollouts: int, points: list[dict[str, float]]) -> tuple[float, float]:
    """(sampling, training) seconds of the same work, one after the other, with nothing else going on."""
    tokenizer = Tokenizer("bundled")
    backend = await TinkerBackend.open(TrainerSettings(lora_rank=RANK), {})
    training = await backend.create("bundled", {})
    sampler = await training.snapshot()
    sampling = await sampling_alone(sampler, tokenizer, rollouts)
    prompt_ids = chat_renderer(tokenizer, "bundled").ids([{"role": "user", "content": prompt(split().training[0])}])
    (sample,) = await sampler.sample(prompt_ids, 1, SamplingSettings(max_tokens=16))
    datum = datum_of(prompt_ids, sample.tokens_T)
    sizes = [int(point["batch/trained_rollouts"]) for point in points]
    await training.step([[datum] * BATCH_SIZE], 1e-9)
    began = time.perf_counter()
    for size in sizes:
        if size:
            await training.step([[datum] * size], 1e-9)
    seconds = time.perf_counter() - began
    await backend.close("success")
    return sampling, seconds


def datum_of(prompt_ids: Any, output_ids: Any) -> Datum:
    ids = np.concatenate([prompt_ids, output_ids])
    is_trained = np.arange(1, len(ids)) >= len(prompt_ids)
    return Datum(
        input_T=ids[:-1],
        target_T=ids[1:],
        logprobs_T=np.where(is_trained, -1.0, 0.0),
        advantages_T=np.where(is_trained, 0.1, 0.0),
        trained_T=is_trained,
        policy_step_T=np.zeros(len(is_trained), np.int64),
        distilled_T=None,
        score=1.0,
        group=0,
        rollout=0,
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=60)
    steps = arguments.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        with running_tinker_service(Path(folder)) as service:
            started = time.perf_counter() - began
            os.environ |= service.env_vars
            figures = asyncio.run(run(Path(folder), service, steps))
            rollouts = int(figures.books["sampled"]["rollouts"])
            sampling, training = asyncio.run(alone(rollouts, figures.points))
            show(figures, started, sampling, training)


def show(figures: RunFigures, service_start: float, sampling: float, training: float) -> None:
    books = figures.books
    sampled, trained = books["sampled"]["tokens"], books["trained"]["tokens"]
    print(f"a run of {len(figures.points)} steps (load {os.getloadavg()[0]:.1f})")
    print("| what | measured | goal |")
    print("|---|---|---|")
    print(f"| wall time | {figures.seconds:.2f} s | |")
    print(f"| pure sampling + pure training, alone | {sampling:.2f} + {training:.2f} s | |")
    print(f"| wall / pure | {figures.seconds / (sampling + training):.2f} | <= 1.10 |")
    print(f"| tokens sampled / of these in groups of equal reward | {sampled} / {figures.filtered_tokens:.0f} | |")
    print(
        f"| tokens trained / sampled in mixed groups | {trained / (sampled - figures.filtered_tokens):.2f} | >= 0.9 |"
    )
    for name in sorted({name for point in figures.points for name in point if name.startswith("time/")}):
        print(f"| {name} | {sum(point.get(name, 0.0) for point in figures.points):.2f} s | |")
    for name, goal in (("api", 1), ("trainer", 4), ("environment", 4)):
        print(f"| start of {name} | {figures.starts[name]:.1f} s | <= {goal} s |")
    print(f"| start of the Tinker service | {service_start:.1f} s | <= 6 s |")
    print(f"| books | {books} | |")


if __name__ == "__main__":
    main()
