"""Whether the backend's logprobs belong to the distribution sampled from: measured once per way of shaping it.

An importance ratio p/q needs the q that drew the token. A backend that samples with a temperature, top_p or top_k but
returns the logprobs of the unshaped distribution gives a wrong q, and nothing in its answer says which one it is.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tinker_atropos.chat.sampling import Ints, SampleRefusedError, SamplingSettings
from tinker_atropos.trainer.backend.policy import Sampler
from tinker_atropos.trainer.inference.ledger import Shaping
from tinker_atropos.trainer.inference.ledger_file import GenerationRecord

logger = logging.getLogger(__name__)

PROBE_TOKENS = 16
MAX_PROMPTS = 16
MIN_NATS = 1.0
"""Least information in a probe's tokens for a decision: far above the noise between two kernels in bfloat16."""

PROBES: Mapping[Shaping, SamplingSettings] = {
    "temperature": SamplingSettings(max_tokens=PROBE_TOKENS, temperature=1e-3, stop=(), seed=0),
    "top_p": SamplingSettings(max_tokens=PROBE_TOKENS, top_p=1e-6, stop=(), seed=0),
    "top_k": SamplingSettings(max_tokens=PROBE_TOKENS, top_k=1, stop=(), seed=0),
}
"""Each puts all mass on the likeliest token: its logprob is 0 under the shaped distribution, and less otherwise."""


def shapings(generation: GenerationRecord) -> frozenset[Shaping]:
    """How the distribution was shaped before this generation was drawn from it."""
    applied: dict[Shaping, bool] = {
        "temperature": generation.temperature != 1,
        "top_p": generation.top_p < 1,
        "top_k": generation.top_k > 0,
    }
    return frozenset(shaping for shaping, is_applied in applied.items() if is_applied)


class SamplingProbe:
    """Asks the sampler, and caches the answer for the life of the process: it is a property of the backend."""

    def __init__(self) -> None:
        self._answers: dict[Shaping, bool] = {}
        self._asking = asyncio.Lock()

    async def trainable(self, generations: Sequence[GenerationRecord], sampler: Sampler, prompt_T: Ints) -> bool:
        """Whether the logprobs of these generations belong to the distributions that they were drawn from.

        Greedy sampling (temperature 0) has no distribution. `prompt_T` is any prompt to probe with.
        """
        if any(generation.temperature == 0 for generation in generations):
            return False
        applied = frozenset[Shaping]().union(*(shapings(generation) for generation in generations))
        return all([await self._answer(shaping, sampler, prompt_T) for shaping in sorted(applied)])

    async def _answer(self, shaping: Shaping, sampler: Sampler, prompt_T: Ints) -> bool:
        """An undecided answer counts as no, and is measured again."""
        async with self._asking:
            if shaping not in self._answers:
                shaped = await _measure(PROBES[shaping], sampler, prompt_T)
                if shaped is None:
                    return False
                self._answers[shaping] = shaped
                which = "shaped" if shaped else "unshaped"
                logger.info("the backend's logprobs of samples with %s are of the %s distribution", shaping, which)
        return self._answers[shaping]


async def _measure(settings: SamplingSettings, sampler: Sampler, prompt_T: Ints) -> bool | None:
    """Sample with the settings, and compare with a forward pass over the same tokens, on as many prompts as it takes to
    decide; None if none of them decides.
    """
    answered = unshaped = 0.0
    for nonsense_T in _nonsense(prompt_T):
        try:
            (sample,) = await sampler.sample(nonsense_T, 1, settings)
            unshaped_T = await sampler.logprobs(np.concatenate([nonsense_T, sample.tokens_T]))
        except SampleRefusedError:
            return False
        answered += float(sample.logprobs_T.sum())
        unshaped += float(unshaped_T[len(nonsense_T) :].sum())
        if abs(unshaped) >= MIN_NATS:
            return abs(answered) < abs(unshaped) / 2
    return None


def _nonsense(prompt_T: Ints) -> Iterator[Ints]:
    """The prompt reversed, and then shuffled: what follows nonsense is uncertain, so shaped and unshaped logprobs are
    far apart.
    """
    generator = np.random.default_rng(0)
    yield prompt_T[::-1].copy()
    for _ in range(MAX_PROMPTS - 1):
        yield generator.permutation(prompt_T)
