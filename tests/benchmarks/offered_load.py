"""What is to be sampled, as a benchmark offers it to a service and to its peer: prompts, lengths and arrivals."""

import asyncio
import random
import time
from dataclasses import dataclass

import tinker
from tinker import types

PROMPT_TOKENS = 32
FIRST_TOKEN = 3
"""Those before it are special tokens of the bundled tokenizer."""


@dataclass(frozen=True)
class Wanted:
    """One sequence of exactly `length` new tokens, asked for `arrival` seconds after the begin."""

    prompt: tuple[int, ...]
    length: int
    arrival: float = 0.0


Load = list[Wanted]


def equal(count: int, length: int, vocabulary: int) -> Load:
    return [Wanted(prompt, length) for prompt in _prompts(count, vocabulary)]


def mixed(count: int, shortest: int, longest: int, vocabulary: int) -> Load:
    """Lengths as answers have them, short ones more often: the quantiles of the log-uniform distribution, shuffled."""
    shares = [(index + 0.5) / count for index in range(count)]
    lengths = [round(shortest * (longest / shortest) ** share) for share in shares]
    random.Random(1).shuffle(lengths)
    return [Wanted(prompt, length) for prompt, length in zip(_prompts(count, vocabulary), lengths, strict=True)]


def staggered(load: Load, tokens_per_second: float) -> Load:
    """The same, arriving one after the other at random times (a Poisson process) that ask for so many tokens/s."""
    chance, arrival, arriving = random.Random(2), 0.0, []
    interval = tokens_of(load) / len(load) / tokens_per_second
    for wanted in load:
        arriving.append(Wanted(wanted.prompt, wanted.length, arrival))
        arrival += chance.expovariate(1 / interval)
    return arriving


def tokens_of(load: Load) -> int:
    return sum(wanted.length for wanted in load)


async def sample(sampler: tinker.SamplingClient, load: Load, at_once: int, deadline: float) -> list[int]:
    """Sample all of it through the SDK, at most so many at once; returns how many tokens each got.

    Raises TimeoutError after `deadline` seconds.
    """
    free, began = asyncio.Semaphore(at_once), time.monotonic()

    async def one(wanted: Wanted) -> int:
        await asyncio.sleep(began + wanted.arrival - time.monotonic())
        async with free:
            prompt = types.ModelInput.from_ints(list(wanted.prompt))
            future = sampler.sample(prompt, 1, types.SamplingParams(max_tokens=wanted.length, stop=[]))
            answer = await asyncio.wrap_future(future.future())
        return len(answer.sequences[0].tokens)

    async with asyncio.timeout(deadline):
        return await asyncio.gather(*(one(wanted) for wanted in load))


def _prompts(count: int, vocabulary: int) -> list[tuple[int, ...]]:
    chance = random.Random(0)
    return [tuple(chance.randrange(FIRST_TOKEN, vocabulary) for _ in range(PROMPT_TOKENS)) for _ in range(count)]
