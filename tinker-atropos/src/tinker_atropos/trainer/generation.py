"""From a prompt's token ids to samples: checked, sampled from the current policy, written into the ledger."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tinker_atropos.errors import RunError
from tinker_atropos.trainer.ledger import Ledger, Sampled
from tinker_atropos.trainer.policy import CurrentPolicy, Sample, SampleRefusedError, SamplingSettings
from tinker_atropos.trainer.rollouts import Ints


class UnavailableError(Exception):
    """No sample can be had now: the trainer is starting or stopping, or its backend is gone."""


@dataclass(frozen=True, slots=True)
class Generation:
    policy_step: int
    samples: list[Sample]


@dataclass(slots=True)
class SamplingTotals:
    """Counters over the process's life."""

    requests: int = 0
    samples: int = 0
    tokens: int = 0
    refused: int = 0


class Generator:
    """Samples from the current policy.

    `context_length` is in tokens, prompt and output together; None leaves the check to the backend. `on_failure` is
    told the error after which the run cannot go on.
    """

    def __init__(self, policy: CurrentPolicy, ledger: Ledger, on_failure: Callable[[RunError], None]) -> None:
        self._policy = policy
        self._ledger = ledger
        self._on_failure = on_failure
        self.context_length: int | None = None
        self.closed_because: str | None = None
        self.totals = SamplingTotals()

    def unavailable(self) -> str | None:
        """Why nothing can be sampled now, or None."""
        if self.closed_because is None and self._policy.latest is None:
            return "the trainer waits for its backend"
        return self.closed_because

    async def generate(self, prompt_T: Ints, n: int, settings: SamplingSettings) -> Generation:
        """Raises SampleRefusedError (this request is wrong) or UnavailableError (nothing can be sampled now)."""
        policy = self._policy.latest
        if self.closed_because is not None or policy is None:
            raise UnavailableError(self.unavailable())
        self.totals.requests += 1
        try:
            settings = self._fitted(len(prompt_T), settings)
            samples = await policy.sampler.sample(prompt_T, n, settings)
        except SampleRefusedError:
            self.totals.refused += 1
            raise
        except RunError as error:
            self._on_failure(error)
            raise UnavailableError(str(error)) from error
        self._note(prompt_T, samples, policy.step, settings)
        return Generation(policy.step, samples)

    def _fitted(self, prompt_length: int, settings: SamplingSettings) -> SamplingSettings:
        """Cut max_tokens to what the context leaves; a prompt that leaves nothing is refused."""
        if prompt_length == 0:
            raise SampleRefusedError("the prompt is empty; it needs at least one token")
        if self.context_length is None:
            return settings
        room = self.context_length - prompt_length
        if room <= 0:
            raise SampleRefusedError(
                f"the prompt has {prompt_length} tokens and the model's context is {self.context_length} tokens: "
                f"there is no room for an answer; shorten the prompt"
            )
        return replace(settings, max_tokens=min(settings.max_tokens, room))

    def _note(self, prompt_T: Ints, samples: list[Sample], step: int, settings: SamplingSettings) -> None:
        for sample in samples:
            sampled = Sampled(sample.logprobs_T, step, settings.temperature, settings.top_p, settings.top_k)
            self._ledger.record(prompt_T, sample.tokens_T, sampled)
            self.totals.samples += 1
            self.totals.tokens += len(sample.tokens_T)
