"""Samples and logprobs of one snapshot, through the SDK."""

from typing import Any

import numpy as np
import tinker
from tinker import types

from tinker_atropos.arrays import Floats, Ints
from tinker_atropos.chat.sampling import Sample, SampleRefusedError, SamplingSettings
from tinker_atropos.errors import BackendLostError
from tinker_atropos.trainer.backend.sdk_calls import answered, gone, refused
from tinker_atropos.trainer.backend.token_use import TokenUse
from tinker_atropos.trainer.data.divergence import check_sample


class TinkerSampler:
    """A Sampler over one snapshot."""

    def __init__(
        self, client: tinker.SamplingClient, deadline_seconds: float, training_run_id: str, used: TokenUse
    ) -> None:
        self._client = client
        self._deadline = deadline_seconds
        self._training_run_id = training_run_id
        self._used = used

    async def sample(self, prompt_T: Ints, n: int, settings: SamplingSettings) -> list[Sample]:
        params = types.SamplingParams(
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
            top_k=settings.top_k,
            stop=settings.stop,
            seed=settings.seed,
        )
        with self._used.sampling(len(prompt_T), n, settings.max_tokens) as answered_with:
            # Cancelling this wait cancels the request at the backend.
            response = await self._answer("sampling", self._client.sample(_prompt(prompt_T), n, params))
            samples = [_sample(sequence) for sequence in response.sequences]
            answered_with(sum(len(sample.tokens_T) for sample in samples))
        for sample in samples:
            check_sample(sample.logprobs_T)
        return samples

    async def logprobs(self, tokens_T: Ints) -> Floats:
        self._used.prefill += len(tokens_T)
        answer = await self._answer("computing logprobs", self._client.compute_logprobs(_prompt(tokens_T)))
        return np.array([np.nan if logprob is None else logprob for logprob in answer], np.float64)

    async def _answer(self, doing: str, future: Any) -> Any:
        try:
            return await answered(doing, self._deadline, future)
        except BackendLostError as error:
            cause = error.__cause__ or error
            if refused(cause) and not gone(cause):
                raise SampleRefusedError(str(error)) from error
            error.training_run_id = self._training_run_id
            raise


def _prompt(tokens_T: Ints) -> types.ModelInput:
    return types.ModelInput.from_ints(tokens_T.tolist())


def _sample(sequence: types.SampledSequence) -> Sample:
    tokens_T = np.asarray(sequence.tokens, np.int64)
    logprobs_T = np.asarray(sequence.logprobs, np.float64)
    return Sample(tokens_T, logprobs_T, "length" if sequence.stop_reason == "length" else "stop")
