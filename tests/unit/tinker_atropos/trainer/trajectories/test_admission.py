"""Which groups can be trained on, with a scripted sampler."""

import numpy as np
import pytest

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.sampling import Sample, SampleRefusedError, SamplingSettings
from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.data.groups import UNKNOWN_STEP, Shaping
from tinker_atropos.trainer.inference.ledger import Ledger
from tinker_atropos.trainer.trajectories.admission import Admission, Admitted, UnusableError
from tinker_atropos.trainer.trajectories.deliveries import read_group

STEP = 10
TWO_TURNS = {
    "tokens": [[1, 2, 9, 4, 5], [1, 3]],
    "masks": [[-100, 2, -100, 4, 5], [-100, 3]],
    "scores": [1.0, 0.0],
}


class UnshapedSampler:
    """A forward pass gives position t the logprob -t; samples answer the same whatever their settings."""

    def __init__(self) -> None:
        self.passes: list[list[int]] = []
        self.refuses = False

    async def sample(self, prompt_T: np.ndarray, n: int, settings: SamplingSettings) -> list[Sample]:
        logprobs_T = -np.arange(len(prompt_T), len(prompt_T) + settings.max_tokens, dtype=float)
        return [Sample(np.zeros(settings.max_tokens, np.int64), logprobs_T, "length")] * n

    async def logprobs(self, tokens_T: np.ndarray) -> np.ndarray:
        if self.refuses:
            raise SampleRefusedError("the prompt is longer than the context")
        self.passes.append(tokens_T.tolist())
        return np.array([np.nan, *range(-1, -len(tokens_T), -1)])


class Gate:
    """An admission with its parts; by default everything was sampled as `TWO_TURNS` needs it."""

    def __init__(self, **settings) -> None:
        self.sampler, self.ledger, self.policy = UnshapedSampler(), Ledger(), CurrentPolicy()
        self.policy.swap(Policy(STEP, self.sampler))
        self.admission = Admission(self.ledger, self.policy, TrainerSettings(**settings))

    def sampled(self, prompt: list[int], output: list[int], step: int = STEP, **settings) -> None:
        logprobs = np.full(len(output), -0.5)
        self.ledger.record(np.array(prompt), np.array(output), logprobs, step, **settings)

    async def admit(self, **fields) -> Admitted:
        return await self.admission.admit(read_group({**TWO_TURNS, **fields}), STEP)


async def refusal(gate: Gate) -> tuple[str, str]:
    with pytest.raises(UnusableError) as caught:
        await gate.admit()
    return caught.value.reason, str(caught.value)


async def test_groups_known_to_the_ledger_are_admitted_without_the_backend() -> None:
    gate = Gate()
    gate.sampled([1], [2], step=8)
    gate.sampled([1, 2, 9], [4, 5], step=9)
    gate.sampled([1], [3])
    admitted = await gate.admit()
    first, second = admitted.group.sequences_S
    assert first.policy_step_T.tolist() == [UNKNOWN_STEP, 8, UNKNOWN_STEP, 9, 9]
    assert second.policy_step_T.tolist() == [UNKNOWN_STEP, STEP]
    assert (admitted.recomputed, gate.sampler.passes) == (0, [])


async def test_missing_logprobs_are_recomputed_span_by_span_by_the_current_policy() -> None:
    gate = Gate()
    gate.sampled([1], [2], step=8)
    gate.sampled([1], [3])
    admitted = await gate.admit()
    first = admitted.group.sequences_S[0]
    assert first.logprobs_T[first.generated_T].tolist() == [-0.5, -3.0, -4.0]
    assert first.policy_step_T.tolist() == [UNKNOWN_STEP, 8, *[UNKNOWN_STEP] * 3], "who sampled them stays unknown"
    assert (admitted.recomputed, gate.sampler.passes) == (1, [[1, 2, 9, 4, 5]])
    assert first.recomputed_T.tolist() == [False, False, False, True, True]
    assert admitted.group.sequences_S[1].recomputed_T is None


async def test_a_group_without_logprobs_may_be_refused() -> None:
    assert (await refusal(Gate(missing_logprobs="refuse")))[0] == "no_logprobs"
    gate = Gate()
    gate.sampler.refuses = True
    assert await refusal(gate) == (
        "no_logprobs",
        "its logprobs cannot be recomputed: the prompt is longer than the context",
    )


async def test_logprobs_of_the_environment_are_enough() -> None:
    sent = [[1.0, -0.5, 1.0, -0.5, -0.5], [1.0, -0.5]]
    admitted = await Gate(missing_logprobs="refuse").admit(inference_logprobs=sent)
    assert set(admitted.group.sequences_S[0].policy_step_T) == {UNKNOWN_STEP}  # unknown is not stale


@pytest.mark.parametrize("max_staleness", [0, 3])
async def test_one_stale_token_makes_the_group_stale(max_staleness: int) -> None:
    gate = Gate(max_staleness=max_staleness)
    gate.sampled([1], [2])
    gate.sampled([1], [3])
    gate.sampled([1, 2, 9], [4, 5], step=STEP - max_staleness)
    await gate.admit()
    gate.sampled([1, 2, 9], [4, 5], step=STEP - max_staleness - 1)
    assert await refusal(gate) == (
        "stale",
        f"it was sampled {max_staleness + 1} policy steps ago, trainer.max_staleness is {max_staleness}",
    )


async def test_a_later_step_of_an_earlier_attempt_is_not_stale() -> None:
    gate = Gate(max_staleness=0, missing_logprobs="refuse")
    gate.sampled([1], [2], step=STEP + 3)
    gate.sampled([1, 2, 9], [4, 5])
    gate.sampled([1], [3])
    await gate.admit()


@pytest.mark.parametrize("settings", [{"temperature": 0.7}, {"top_p": 0.9}, {"top_k": 5}, {"temperature": 0.0}])
async def test_logprobs_of_another_sampling_distribution_are_not_trained(settings: dict) -> None:
    gate = Gate()
    gate.sampled([1], [3], **settings)
    reason, sentence = await refusal(gate)
    assert reason == "untrainable_sampling"
    assert "let the environment sample with temperature 1, top_p 1 and no top_k" in sentence


async def test_too_long() -> None:
    assert await refusal(Gate(max_token_trainer_length=4)) == (
        "too_long",
        "it has 5 tokens, trainer.max_token_trainer_length is 4",
    )


@pytest.mark.parametrize(("known", "told"), [(True, Shaping(1.0, 1.0, -1)), (False, None)])
async def test_how_a_group_was_sampled_is_told_if_all_of_it_is_known(known: bool, told: Shaping | None) -> None:
    gate = Gate()
    gate.sampled([1], [2])
    gate.sampled([1, 2, 9], [4, 5])
    if known:
        gate.sampled([1], [3])
    assert (await gate.admit()).group.shaping == told


async def test_parts_that_were_sampled_in_two_ways_have_no_one_way() -> None:
    gate = Gate()
    gate.sampled([1], [2])
    gate.sampled([1, 2, 9], [4, 5])
    gate.sampled([1], [3], top_k=5)
    with pytest.raises(UnusableError) as caught:  # the backend's logprobs are not of that
        await gate.admit()
    assert caught.value.group is not None
    assert caught.value.group.shaping is None
