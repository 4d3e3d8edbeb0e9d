"""Samples, and what happens to them when the backend is lost."""

import asyncio
import time

import numpy as np
import pytest

from tinker_atropos.chat.sampling import Floats, Ints, Sample, SamplingSettings
from tinker_atropos.errors import BackendError, BackendLostError
from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.data.groups import TokenSequence
from tinker_atropos.trainer.inference.generation import Generator, UnavailableError
from tinker_atropos.trainer.inference.ledger import Ledger

PROMPT, SETTINGS = np.array([1, 2]), SamplingSettings(max_tokens=4)


class Sampler:
    """Answers or raises what it was given, once `hold`, if given, is set."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked = asyncio.Event()
        self.hold: asyncio.Event | None = None
        self.answer = Sample(np.array([7]), np.array([-0.5]), "stop")

    async def sample(self, prompt_T: Ints, n: int, settings: SamplingSettings) -> list[Sample]:  # noqa: ARG002 -- a Sampler's
        self.asked.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        return [self.answer] * n

    async def logprobs(self, tokens_T: Ints) -> Floats:
        return np.zeros(len(tokens_T))


async def test_a_sample_survives_a_lost_backend_and_belongs_to_its_policy() -> None:
    policy, told = CurrentPolicy(), asyncio.Queue[Exception]()
    generator = Generator(policy, Ledger(), on_failure=told.put_nowait)
    lost = BackendLostError("sampling: there is no such sampler")
    policy.swap(Policy(30, Sampler(lost)))
    sampling = asyncio.create_task(generator.generate(PROMPT, 2, SETTINGS))
    assert await asyncio.wait_for(told.get(), 10) is lost
    assert generator.seconds_idle(0) == 0
    assert generator.seconds_unanswered(time.monotonic() + 100) >= 100
    policy.swap(Policy(25, Sampler()))
    generation = await asyncio.wait_for(sampling, 60)
    assert generation.policy_step == 25
    assert generator.seconds_unanswered(time.monotonic() + 100) == 0, "nothing is asked for"
    assert generator.totals.training.rollouts == 2


@pytest.mark.parametrize(("reason", "truncated"), [("length", True), ("stop", False)])
async def test_the_ledger_knows_what_was_cut_off_by_length(reason, truncated) -> None:
    ledger, policy = Ledger(), CurrentPolicy()
    sampler = Sampler()
    sampler.answer = Sample(np.array([7]), np.array([-0.5]), reason)
    policy.swap(Policy(1, sampler))
    await Generator(policy, ledger, on_failure=lambda _: None).generate(PROMPT, 1, SETTINGS)
    tokens_T = np.append(PROMPT, 7)
    unknown_T = np.full(len(tokens_T), np.nan)
    asked = TokenSequence(tokens_T, np.arange(len(tokens_T)) == len(PROMPT), unknown_T, np.full(len(tokens_T), -1), 1.0)
    assert ledger.attribute(asked).sequence.truncated is truncated


async def test_a_missing_older_snapshot_is_not_a_lost_backend() -> None:
    policy, told = CurrentPolicy(), []
    generator = Generator(policy, Ledger(), on_failure=told.append)
    deleted, hold = Sampler(BackendLostError("sampling: there is no such sampler")), asyncio.Event()
    deleted.hold = hold
    policy.swap(Policy(30, deleted))
    sampling = asyncio.create_task(generator.generate(PROMPT, 2, SETTINGS))
    await asyncio.wait_for(deleted.asked.wait(), 10)
    policy.swap(Policy(31, Sampler()))  # a step was trained meanwhile
    hold.set()
    assert (await asyncio.wait_for(sampling, 60)).policy_step == 31
    assert told == []


async def test_an_evaluation_whose_weights_are_gone_does_not_go_on_with_others() -> None:
    policy, told = CurrentPolicy(), []
    generator = Generator(policy, Ledger(), on_failure=told.append)
    policy.swap(Policy(30, Sampler(BackendLostError("sampling: there is no such sampler"))))
    assert generator.begin_evaluation(30) == 30
    policy.swap(Policy(31, Sampler()))
    with pytest.raises(UnavailableError, match="the weights of step 30 are gone, which are evaluated"):
        await generator.generate(PROMPT, 1, SETTINGS, "evaluation", 30)
    assert told == []


async def test_an_unresponsive_backend_fails_the_sample() -> None:
    policy, told = CurrentPolicy(), []
    generator = Generator(policy, Ledger(), on_failure=told.append)
    silent = BackendError("sampling: no answer")
    policy.swap(Policy(30, Sampler(silent)))
    with pytest.raises(UnavailableError, match="no answer"):
        await generator.generate(PROMPT, 1, SETTINGS)
    assert told == [silent]


async def test_idle_time_starts_when_the_last_sample_returns() -> None:
    policy = CurrentPolicy()
    generator = Generator(policy, Ledger(), on_failure=print)
    assert generator.seconds_idle(1e9) is None
    policy.swap(Policy(0, Sampler()))
    await generator.generate(PROMPT, 1, SETTINGS)
    idle = generator.seconds_idle(1e9)
    assert idle is not None
    assert idle > 1
