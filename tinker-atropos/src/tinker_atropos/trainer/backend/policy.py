"""The policy that inference samples from: a frozen snapshot of the weights and the step it was taken after."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tinker_atropos.chat.sampling import Floats, Ints, Sample, SamplingSettings


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


@dataclass(frozen=True, slots=True)
class Policy:
    step: int
    sampler: Sampler


class CurrentPolicy:
    """The newest policy. A single assignment swaps it: a request keeps the policy it began with.

    One more is kept for evaluation: the newest policy whose step `is_due`, or that training was opened with. While it
    is evaluated, it stays the same, whatever is trained in the meantime. `evaluated_last` is the step of the evaluation
    that began last, whether or not it is over: its result comes later.
    """

    def __init__(self, is_due: Callable[[int], bool] = lambda _step: False) -> None:
        self._is_due = is_due
        self.latest: Policy | None = None
        self._to_evaluate: Policy | None = None
        self._evaluated: Policy | None = None
        self.evaluated_last: int | None = None
        self._swapped = asyncio.Event()

    def swap(self, policy: Policy, *, opened: bool = False) -> None:
        """`opened`: of weights that were opened, now or again. Older snapshots may be gone with the others."""
        self.latest = policy
        if opened or self._to_evaluate is None or self._is_due(policy.step):
            self._to_evaluate = policy
        if self._evaluated is not None and self._evaluated.step == policy.step:  # the same weights, trained again
            self._evaluated = policy
        self._swapped.set()
        self._swapped = asyncio.Event()

    async def after(self, policy: Policy) -> Policy:
        """The newest policy; waits for the next one while `policy` is the newest."""
        while self.latest is None or self.latest is policy:
            await self._swapped.wait()
        return self.latest

    # The policy that is evaluated.

    def begin_evaluation(self, due_step: int) -> Policy | None:
        """The policy that the evaluation due at a step is of: that step's, else a newer one, or after a reopening the
        newest there is, which may be older. None: there is none yet.

        There is one evaluation at a time: the snapshot of another one is dropped.
        """
        kept = self._to_evaluate
        self._evaluated = kept if kept is not None and kept.step >= due_step else self.latest
        self.evaluated_last = None if self._evaluated is None else self._evaluated.step
        return self._evaluated

    def end_evaluation(self, step: int) -> None:
        """Drop the snapshot of the evaluation of a step, unless another one has begun."""
        if self._evaluated is not None and self._evaluated.step == step:
            self._evaluated = None

    def evaluated(self, step: int) -> Policy | None:
        """The policy that the evaluation of a step samples from; None if it is over."""
        return self._evaluated if self._evaluated is not None and self._evaluated.step == step else None

    async def again(self, lost: Policy) -> Policy | None:
        """The policy of the same step, once the weights are there again; None if training is past it."""
        while True:
            found, newest = self.evaluated(lost.step), self.latest
            if found is not lost:
                return found
            if newest is None or newest.step > lost.step:
                return None
            await self.after(newest)
