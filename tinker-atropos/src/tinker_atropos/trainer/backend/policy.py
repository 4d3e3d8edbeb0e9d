"""The policy that inference samples from: a frozen snapshot of the weights and the step it was taken after."""

import asyncio
from dataclasses import dataclass
from typing import Literal, Protocol

from tinker_atropos.trainer.data.groups import Floats, Ints

StopReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How to sample. `stop=None` stops at the model's EOS, an empty `stop` never stops, and others (all strings or all
    token ids) replace EOS; `seed=None` lets the backend choose.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop: tuple[str, ...] | tuple[int, ...] | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One generated sequence, including EOS if it was generated, and its logprobs."""

    tokens_T: Ints
    logprobs_T: Floats
    stop_reason: StopReason


class Sampler(Protocol):
    """Samples from one snapshot of the weights."""

    async def sample(self, prompt_T: Ints, n: int, settings: SamplingSettings) -> list[Sample]:
        """Sample n sequences. Raises SampleRefusedError, or a RunError if the run cannot continue: DivergedError if a
        logprob is not a finite number.
        """
        ...

    async def logprobs(self, tokens_T: Ints) -> Floats:
        """Logprob of each token given those before it, by a forward pass; NaN for the first. Raises like `sample`."""
        ...


class SampleRefusedError(Exception):
    """The backend refused this one request; others may succeed."""


@dataclass(frozen=True, slots=True)
class Policy:
    step: int
    sampler: Sampler


class CurrentPolicy:
    """The newest policy. A single assignment swaps it: a request keeps the policy it began with."""

    def __init__(self) -> None:
        self._policy: Policy | None = None
        self._swapped = asyncio.Event()

    @property
    def latest(self) -> Policy | None:
        return self._policy

    def swap(self, policy: Policy) -> None:
        self._policy = policy
        self._swapped.set()
        self._swapped = asyncio.Event()

    async def after(self, policy: Policy) -> Policy:
        """The newest policy; waits for the next one while `policy` is the newest."""
        while self._policy is None or self._policy is policy:
            await self._swapped.wait()
        return self._policy
