"""From a prompt's token ids to samples: checked, sampled from the current policy, recorded in the ledger."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace

from rl_contract.trainer_settings import RolloutSampling
from tinker_atropos.chat.sampling import (
    ContextOverflowError,
    GeneratedSamples,
    Ints,
    Purpose,
    Sample,
    SampleRefusedError,
    SamplingSettings,
    UnavailableError,
)
from tinker_atropos.errors import BackendLostError, EnvironmentLostError, RunError
from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.inference.ledger import Ledger


@dataclass(slots=True)
class Book:
    """What was sampled for one purpose. A rollout is one sampled continuation: one turn of a multi-turn rollout."""

    requests: int = 0
    rollouts: int = 0
    tokens: int = 0

    def add(self, rollouts: int, tokens: int) -> None:
        self.requests += 1
        self.rollouts += rollouts
        self.tokens += tokens


@dataclass(slots=True)
class SamplingTotals:
    """Counters over the life of the process. Every request that reached the backend is in one book, or refused.

    The backend does not report how far a canceled request got: its tokens are counted as the most that they can have
    been.
    """

    training: Book = field(default_factory=Book)
    evaluation: Book = field(default_factory=Book)
    cancelled: Book = field(default_factory=Book)
    refused: int = 0
    context_overflows: int = 0

    def to_wire(self) -> dict[str, dict[str, int]]:
        """The `books` of the trainer's `/status`."""
        return {
            "sampled": asdict(self.training),
            "evaluation": asdict(self.evaluation),
            "cancelled": asdict(self.cancelled),
        }


class Generator:
    """Samples from the current policy, and for an evaluation from the policy that was current when it began.

    `context_length` is in tokens, prompt and output together; None leaves the check to the backend.

    `sampling` is for what requests of training do not name themselves.

    `on_failure` is called for a lost backend (the sample waits for the next policy), for one that does not answer, and
    for `max_context_overflows` too long prompts in a row without a batch: after the last two the run cannot continue.
    """

    def __init__(
        self,
        policy: CurrentPolicy,
        ledger: Ledger,
        on_failure: Callable[[RunError], None],
        max_context_overflows: int = 100,
        sampling: RolloutSampling | None = None,
    ) -> None:
        self._policy = policy
        self._ledger = ledger
        self._on_failure = on_failure
        self._max_context_overflows = max_context_overflows
        self._unless_named = (sampling or RolloutSampling()).model_dump()
        self._overflows_in_row = 0
        self._in_flight = 0
        self._asked_at: float | None = None
        self._unanswered_since = 0.0
        self.context_length: int | None = None
        self.closed_because: str | None = None
        self.totals = SamplingTotals()

    def unavailable(self) -> str | None:
        """Why nothing can be sampled now, or None."""
        if self.closed_because is None and self._policy.latest is None:
            return "the trainer waits for its backend"
        return self.closed_because

    def begin_evaluation(self, due_step: int) -> int:
        """The step whose weights the evaluation due at `due_step` samples. Raises UnavailableError."""
        policy = self._policy.begin_evaluation(due_step)
        if self.unavailable() or policy is None:
            raise UnavailableError(self.unavailable())
        return policy.step

    def end_evaluation(self, step: int) -> None:
        self._policy.end_evaluation(step)

    def batch_taken(self) -> None:
        """A batch arrived: the environment makes groups even if some prompts were too long."""
        self._overflows_in_row = 0

    def metrics(self) -> dict[str, float]:
        """The books as metrics: counts since the start of the process."""
        totals = self.totals
        return {
            "tokens/sampled": float(totals.training.tokens),
            "tokens/evaluation": float(totals.evaluation.tokens),
            "tokens/cancelled": float(totals.cancelled.tokens),
            "inference/requests_cancelled": float(totals.cancelled.requests),
            "inference/requests_refused": float(totals.refused),
            "inference/context_overflows": float(totals.context_overflows),
        }

    async def generate(
        self,
        prompt_T: Ints,
        n: int,
        settings: SamplingSettings,
        purpose: Purpose = "training",
        evaluated_step: int | None = None,
    ) -> GeneratedSamples:
        """Sample from the newest policy, or from that of the evaluation of `evaluated_step`.

        Raises SampleRefusedError (this request is wrong) or UnavailableError (nothing can be sampled now).
        """
        policy = self._policy.latest if evaluated_step is None else self._policy.evaluated(evaluated_step)
        if self.unavailable() or policy is None:
            raise UnavailableError(self.unavailable() or f"the evaluation of step {evaluated_step} is over")
        if purpose == "training":
            settings = replace(settings, **{name: self._unless_named[name] for name in settings.left_out})
        try:
            settings = self._fitted(len(prompt_T), settings)
            with self._asking():
                policy, samples = await self._sample(policy, prompt_T, n, settings, pinned=evaluated_step is not None)
        except SampleRefusedError:
            self.totals.refused += 1
            raise
        except asyncio.CancelledError:
            self.totals.cancelled.add(n, n * settings.max_tokens)
            raise
        except RunError as error:
            self._on_failure(error)
            raise UnavailableError(str(error)) from error
        self._note(prompt_T, samples, policy.step, settings, purpose)
        return GeneratedSamples(samples, policy.step)

    def seconds_idle(self, now: float) -> float | None:
        """Seconds since the last sample request (`now` from time.monotonic()); None if there has been none."""
        if self._in_flight:
            return 0.0
        return None if self._asked_at is None else now - self._asked_at

    def seconds_unanswered(self, now: float) -> float:
        """Seconds for which samples have been asked for and none has come back; 0.0 if none is asked for."""
        return now - self._unanswered_since if self._in_flight else 0.0

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        if not self._in_flight:
            self._unanswered_since = time.monotonic()
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            self._asked_at = self._unanswered_since = time.monotonic()

    async def _sample(
        self, policy: Policy, prompt_T: Ints, n: int, settings: SamplingSettings, *, pinned: bool
    ) -> tuple[Policy, list[Sample]]:
        """The samples and the policy that they are from: the next one, if the backend loses this one in the meantime.
        In an evaluation (`pinned`) it can only be the one of the same step.

        Reopening a lost backend has its own deadline, after which this process ends.
        """
        while True:
            try:
                return policy, await policy.sampler.sample(prompt_T, n, settings)
            except BackendLostError as error:
                if policy is self._policy.latest:  # an older snapshot that is gone says nothing about the weights
                    self._on_failure(error)
                following = self._policy.again(policy) if pinned else self._policy.after(policy)
                next_one = await following
                if next_one is None:
                    gone = f"the weights of step {policy.step} are gone, which are evaluated: {error}"
                    raise UnavailableError(gone) from error
                policy = next_one

    def _fitted(self, prompt_length: int, settings: SamplingSettings) -> SamplingSettings:
        """Cut max_tokens to the rest of the context; a prompt that leaves no room is refused."""
        if prompt_length == 0:
            raise SampleRefusedError("the prompt is empty; it needs at least one token")
        if self.context_length is None:
            return settings
        room = self.context_length - prompt_length
        if room <= 0:
            self._overflowed(prompt_length, self.context_length)
            raise ContextOverflowError(
                f"the prompt has {prompt_length} tokens and the model's context is {self.context_length} tokens: "
                f"there is no room for an answer; shorten the prompt"
            )
        return replace(settings, max_tokens=min(settings.max_tokens, room))

    def _overflowed(self, prompt_length: int, context_length: int) -> None:
        """Count it. Environments only lose the group, so losing all of them would go unnoticed."""
        self.totals.context_overflows += 1
        self._overflows_in_row += 1
        if self._overflows_in_row == self._max_context_overflows:
            self._on_failure(
                EnvironmentLostError(
                    f"{self._overflows_in_row} prompts in a row were too long and no batch came between them "
                    f"(trainer.max_context_overflows): the last one has {prompt_length} tokens and the model's context "
                    f"is {context_length} tokens; shorten the environment's prompts or its conversations, or choose a "
                    f"model with a longer context"
                )
            )

    def _note(
        self, prompt_T: Ints, samples: list[Sample], step: int, settings: SamplingSettings, purpose: Purpose
    ) -> None:
        tokens = sum(len(sample.tokens_T) for sample in samples)
        if purpose == "evaluation":  # never trained: the ledger's space is for what is
            self.totals.evaluation.add(len(samples), tokens)
            return
        self.totals.training.add(len(samples), tokens)
        for sample in samples:
            if not len(sample.tokens_T):
                continue
            self._ledger.record(
                prompt_T,
                sample.tokens_T,
                sample.logprobs_T,
                step,
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=settings.top_k,
                truncated=sample.stop_reason == "length",
            )
