"""Whether logprobs are of the distribution sampled from: measured on samplers of both kinds."""

import numpy as np
import pytest
import tinker

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.sampling import Sample, SampleRefusedError, SamplingSettings
from tinker_atropos.trainer.backend.backend import Training
from tinker_atropos.trainer.inference.ledger_file import GenerationRecord
from tinker_atropos.trainer.trajectories.sampling_probe import SamplingProbe, shapings

PROMPT = np.array([1, 2, 3])
LOGITS = np.array([2.0, 1.0, 0.0, -1.0])


def generation(temperature: float = 1.0, top_p: float = 1.0, top_k: int = -1) -> GenerationRecord:
    return GenerationRecord(0, 0, b"", b"", 0, temperature, top_p, top_k, sampled_at=0.0)


ROUTES = {
    "temperature": generation(temperature=0.7),
    "top_p": generation(top_p=0.9),
    "top_k": generation(top_k=40),
}


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


class FixedDistribution:
    """Draws the likeliest token of four, whatever came before; answers the shaped logprob or that of temperature 1."""

    def __init__(self, shaped: frozenset[str], logits: np.ndarray = LOGITS) -> None:
        self.shaped, self.logits = shaped, logits
        self.asked = 0

    async def sample(self, _prompt_T: np.ndarray, n: int, settings: SamplingSettings) -> list[Sample]:
        self.asked += 1
        logprob = log_softmax(self.logits)[0]
        if "temperature" in self.shaped and settings.temperature != 1:
            logprob = log_softmax(self.logits / settings.temperature)[0]
        if ("top_k" in self.shaped and settings.top_k == 1) or ("top_p" in self.shaped and settings.top_p < 1):
            logprob = 0.0
        length = settings.max_tokens
        return [Sample(np.zeros(length, np.int64), np.full(length, logprob), "length")] * n

    async def logprobs(self, tokens_T: np.ndarray) -> np.ndarray:
        return np.array([np.nan, *[log_softmax(self.logits)[0]] * (len(tokens_T) - 1)])


@pytest.mark.parametrize("way", ROUTES)
@pytest.mark.parametrize("shaped", [frozenset(), frozenset({"temperature"}), frozenset({"top_p", "top_k"})])
async def test_a_backend_is_measured_once_for_each_kind_of_shaping(way: str, shaped: frozenset[str]) -> None:
    sampler, probe = FixedDistribution(shaped), SamplingProbe()
    for _ in range(3):
        assert await probe.trainable([ROUTES[way], generation()], sampler, PROMPT) == (way in shaped)
    assert sampler.asked == 1


async def test_every_kind_that_was_used_must_be_right() -> None:
    both = generation(temperature=0.7, top_k=3)
    assert not await SamplingProbe().trainable([both], FixedDistribution(frozenset({"temperature"})), PROMPT)
    assert await SamplingProbe().trainable([both], FixedDistribution(frozenset({"temperature", "top_k"})), PROMPT)


async def test_plain_sampling_needs_no_probe_and_greedy_is_never_trained() -> None:
    sampler, probe = FixedDistribution(frozenset({"temperature"})), SamplingProbe()
    assert await probe.trainable([], sampler, PROMPT)
    assert await probe.trainable([generation()], sampler, PROMPT)
    assert not await probe.trainable([generation(temperature=0.0)], sampler, PROMPT)
    assert sampler.asked == 0


async def test_a_policy_certain_of_every_token_decides_nothing_and_is_probed_again() -> None:
    sampler, probe = FixedDistribution(frozenset({"top_k"}), np.array([20.0, 0.0])), SamplingProbe()
    assert not await probe.trainable([ROUTES["top_k"]], sampler, PROMPT)
    sampler.logits = LOGITS
    assert await probe.trainable([ROUTES["top_k"]], sampler, PROMPT)


async def test_an_inconclusive_prompt_is_followed_by_others() -> None:
    """A small model may be certain of what follows one nonsense prompt: no group is dropped for that."""

    class SureOfTheFirst(FixedDistribution):
        async def sample(self, prompt_T: np.ndarray, n: int, settings: SamplingSettings) -> list[Sample]:
            self.logits = LOGITS if self.asked else np.array([20.0, 0.0])
            return await super().sample(prompt_T, n, settings)

    sampler, probe = SureOfTheFirst(frozenset({"temperature"})), SamplingProbe()
    assert await probe.trainable([ROUTES["temperature"]], sampler, PROMPT)
    assert sampler.asked == 2
    assert not await SamplingProbe().trainable([ROUTES["temperature"]], SureOfTheFirst(frozenset()), PROMPT)


async def test_a_backend_that_refuses_the_probe_is_not_trusted() -> None:
    class Refusing(FixedDistribution):
        async def sample(self, *_asked: object) -> list[Sample]:
            raise SampleRefusedError("top_k is not supported")

    assert not await SamplingProbe().trainable([ROUTES["top_k"]], Refusing(frozenset()), PROMPT)


@pytest.mark.parametrize("way", ROUTES)
async def test_the_tinker_service_returns_the_shaped_distribution(way: str, tinker_service) -> None:
    client = tinker.ServiceClient(base_url=tinker_service.url, api_key=tinker_service.key)
    sampler = await Training(await client.create_lora_training_client("bundled", rank=4), TrainerSettings()).snapshot()
    assert await SamplingProbe().trainable([ROUTES[way]], sampler, PROMPT)
    await client.close("success")


def test_kinds_of_shaping() -> None:
    assert {way: shapings(used) for way, used in ROUTES.items()} == {way: {way} for way in ROUTES}
    assert not shapings(generation(top_k=0))
