"""The Tinker service's sampling next to `generate` of transformers: `python -m tests.benchmarks.sampling_bench`.

Tokens per CPU second of the process that computes: one thread each, the same model in the same precision, the same
prompts, at most 32 sequences at once. The service samples through HTTP and the unmodified SDK; `generate` runs static
batches in a process of its own and needs neither. Only tokens that were asked for count. Asserts nothing.
"""

import argparse
import asyncio
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tinker
from tests.benchmarks.made_models import Shape, random_llama
from tests.benchmarks.meter import Stopwatch, Used
from tests.benchmarks.offered_load import Load, equal, mixed, sample, staggered, tokens_of
from tests.benchmarks.static_generation import StaticGeneration, static_generation
from tests.benchmarks.tinker_process import TinkerProcess, tinker_service

from rl_contract.bundled import bundled_model_folder

AT_ONCE = 32
DEADLINE = 300.0
SHORTEST, LONGEST = 4, 256
OFFERED = 0.75
"""Of the tokens/s that `generate` reached with equal lengths: more than static batches sustain with mixed ones."""


@dataclass(frozen=True)
class Contest:
    """One model, how many sequences of mixed lengths are sampled from it, and how often those of equal lengths."""

    name: str
    folder: Callable[[Path], Path]
    dtype: str
    vocabulary: int
    sequences: int
    repeats: int


CONTESTS = {
    "bundled": Contest("bundled, 0.5 M", lambda _: bundled_model_folder(), "float64", 512, 128, 5),
    "llama": Contest("Llama, 54 M", lambda folder: random_llama(folder, Shape()), "float32", 32_000, 64, 3),
}


@dataclass(frozen=True)
class Turn:
    """The same load, sampled by the service and by `generate`."""

    tokens: int
    ours: Used
    theirs: Used

    @property
    def ratio(self) -> float:
        """Our tokens per CPU second, to theirs."""
        return self.theirs.cpu / self.ours.cpu


class Sitting:
    def __init__(self, service: TinkerProcess, sampler: tinker.SamplingClient, peer: StaticGeneration) -> None:
        self._service, self._sampler, self._peer = service, sampler, peer

    def turn(self, load: Load, repeats: int = 1) -> Turn:
        """Alternately; of several turns the one with the median ratio."""
        turns = [Turn(tokens_of(load), self._sampled(load), self._generated(load)) for _ in range(repeats)]
        return sorted(turns, key=lambda turn: turn.ratio)[(repeats - 1) // 2]

    def _sampled(self, load: Load) -> Used:
        watch = Stopwatch(self._service.pid)
        lengths = asyncio.run(sample(self._sampler, load, AT_ONCE, DEADLINE))
        used = watch.read()
        assert sum(lengths) == tokens_of(load)
        return used

    def _generated(self, load: Load) -> Used:
        return self._peer.sample(load, AT_ONCE, DEADLINE)


def show(name: str, turn: Turn, goal: str) -> None:
    figures = [
        f"{turn.tokens / used.cpu:>8.0f} ({turn.tokens / used.seconds:.0f})" for used in (turn.ours, turn.theirs)
    ]
    print(f"{name:<52}{figures[0]:>18}{figures[1]:>18}{turn.ratio:>8.2f}x   {goal}", flush=True)


def compete(contest: Contest, rank: int) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = contest.folder(Path(temporary))
        options = ("--model", str(folder), "--dtype", contest.dtype, "--threads", "1")
        with tinker_service(*options) as service, static_generation(folder, contest.dtype) as peer:
            sitting = Sitting(service, sampler_of(service.client(), folder, rank), peer)
            mixture = mixed(contest.sequences, SHORTEST, LONGEST, contest.vocabulary)
            sitting.turn(equal(AT_ONCE, 8, contest.vocabulary))  # warms both up
            same = sitting.turn(equal(AT_ONCE, 64, contest.vocabulary), contest.repeats)
            show(f"{contest.name}: {AT_ONCE} x 64 tokens", same, ">= 1.0x")
            what = f"{contest.name}: {contest.sequences} x {SHORTEST} to {LONGEST} tokens"
            show(f"{what}, at once", sitting.turn(mixture), ">= 2x")
            arriving = staggered(mixture, OFFERED * same.tokens / same.theirs.seconds)
            show(f"{what}, staggered", sitting.turn(arriving), ">= 2x")


def sampler_of(client: tinker.ServiceClient, folder: Path, rank: int) -> tinker.SamplingClient:
    """Of the base model, as `generate` has it, or with an adapter of that rank."""
    if not rank:
        return client.create_sampling_client(base_model=str(folder)).result(DEADLINE)
    training = client.create_lora_training_client(str(folder), rank=rank, seed=0).result(DEADLINE)
    return training.save_weights_and_get_sampling_client().result(DEADLINE)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--models", nargs="+", choices=CONTESTS, default=list(CONTESTS))
    arguments.add_argument("--rank", type=int, default=0, help="of an adapter that only the service applies; 0: none")
    options = arguments.parse_args()
    print(f"sampling, tokens per CPU second (per second), {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':<52}{'service':>18}{'generate':>18}{'':>8}    goal")
    for name in options.models:
        compete(CONTESTS[name], options.rank)


if __name__ == "__main__":
    main()
