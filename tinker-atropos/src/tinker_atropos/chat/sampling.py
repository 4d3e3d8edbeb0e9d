"""What is asked of a policy in tokens, what comes back, and why it may not."""

import hashlib
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
"""The arrays that stand for tokens, logprobs and masks."""

StopReason = Literal["stop", "length"]
Purpose = Literal["training", "evaluation"]


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How to sample. `stop=None` stops at the model's EOS, an empty `stop` never stops, and others (all strings or all
    token ids) replace EOS; `seed=None` lets the backend choose. `left_out`: which of temperature, top_p and top_k the
    request does not name; a run has settings for them.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop: tuple[str, ...] | tuple[int, ...] | None = None
    seed: int | None = None
    left_out: frozenset[str] = frozenset()


def seed_from(*parts: object) -> int:
    """A seed that follows from the parts alone, in 63 bits: Tinker and the servers that speak OpenAI's API take it."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


@dataclass(frozen=True, slots=True)
class Sample:
    """One generated sequence, including EOS if it was generated, and its logprobs."""

    tokens_T: Ints
    logprobs_T: Floats
    stop_reason: StopReason


@dataclass(frozen=True, slots=True)
class GeneratedSamples:
    """Samples of one prompt. `policy_step` None: which policy they are from is not known here."""

    samples: list[Sample]
    policy_step: int | None = None


class SampleRefusedError(Exception):
    """One request cannot be sampled; others may succeed."""


class ContextOverflowError(SampleRefusedError):
    """The prompt leaves no room for an answer."""


class UnavailableError(Exception):
    """Sampling is not available now: the trainer is starting or stopping, or its backend is gone."""


class SampleSource(Protocol):
    """Samples from the policy."""

    @property
    def context_length(self) -> int | None:
        """Prompt and answer together, in tokens; None if it is not known."""
        ...

    def unavailable(self) -> str | None:
        """Why nothing can be sampled now, or None."""
        ...

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
        ...
