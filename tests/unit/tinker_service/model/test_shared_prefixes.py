"""What sequences share is computed once, and nothing else about them changes."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_service.sampled import sampled

from tinker_service.model.engine import Engine
from tinker_service.model.lora import LoraSpec
from tinker_service.model.sampling.sample_jobs import SamplingRequest
from tinker_service.model.shared_prefixes import PackedSequences, SharedPrefix, shared_prefixes
from tinker_service.model.training import Trainee, TrainingDatum, forward_backward


def arrays(sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
    return [np.array(tokens, np.int64) for tokens in sequences]


@pytest.mark.parametrize(
    ("sequences", "expected"),
    [
        ([(1, 2, 3)], {((0,), 0)}),
        ([(1, 2, 3), (4, 2, 3)], {((0,), 0), ((1,), 0)}),
        ([(1, 2, 3), (1, 2, 4)], {((0, 1), 2)}),
        ([(1, 2), (1, 2), (1, 2)], {((0, 1, 2), 2)}),
        ([(1, 2), (1, 2, 3)], {((0, 1), 2)}),
        # Two groups whose prompts begin alike: each keeps its own prompt.
        ([(9, 1, 1, 5), (9, 2, 2, 5), (9, 1, 1, 6), (9, 2, 2, 6)], {((0, 2), 3), ((1, 3), 3)}),
        # Four equal answers save more by themselves than one more member of the group would.
        ([(7, 1, 2, 3)] * 4 + [(7, 5, 6, 6)], {((0, 1, 2, 3), 4), ((4,), 0)}),
    ],
)
def test_the_division_that_saves_most(
    sequences: list[tuple[int, ...]], expected: set[tuple[tuple[int, ...], int]]
) -> None:
    found = shared_prefixes(arrays(sequences))
    assert {(tuple(sorted(each.members)), each.length) for each in found} == expected


TOKENS = st.lists(st.integers(3, 6), min_size=1, max_size=12)


@given(st.lists(TOKENS, min_size=1, max_size=8))
def test_every_token_has_its_place(sequences: list[list[int]]) -> None:
    data = arrays(sequences)
    sets: list[SharedPrefix] = shared_prefixes(data)
    assert sorted(member for each in sets for member in each.members) == [*range(len(data))]
    packed = PackedSequences(data, torch.device("cpu"), torch.float64)
    saved = sum((len(each.members) - 1) * each.length for each in sets)
    assert packed.tokens.shape == packed.positions.shape == (1, sum(map(len, data)) - saved)
    for tokens, places in zip(data, packed.places, strict=True):
        np.testing.assert_array_equal(packed.tokens[0, places[: len(tokens)]], tokens)
        np.testing.assert_array_equal(packed.positions[0, places[: len(tokens)]], np.arange(len(tokens)))


@pytest.fixture(scope="module")
def group(engine: Engine) -> list[TrainingDatum]:
    """Rollouts of several lengths: two groups with a prompt each, two equal answers, and a sequence on its own."""
    prompts = [tuple(range(5, 25)), (*range(5, 12), 90, 91)]
    requests = [SamplingRequest(prompt, num_samples=3, max_tokens=5 + index) for index, prompt in enumerate(prompts)]
    rows = [row for rows in sampled(engine.model, requests) for row in rows]
    sequences = [(*row.request.prompt, *row.tokens) for row in rows]
    generator = np.random.default_rng(0)
    return [
        TrainingDatum(
            np.array(tokens[:-1]),
            {
                "target_tokens": np.array(tokens[1:]),
                "logprobs": generator.normal(-1, 0.1, len(tokens) - 1).astype(np.float32),
                "advantages": generator.normal(0, 1, len(tokens) - 1).astype(np.float32),
            },
        )
        for tokens in [*sequences, sequences[0], (3, 4)]
    ]


def test_logprobs_and_gradients_are_those_of_the_sequences_one_by_one(
    engine: Engine, group: list[TrainingDatum]
) -> None:
    together, alone = (Trainee(engine.model.new_adapter(LoraSpec(rank=4, seed=0))) for _ in range(2))
    options = {"loss_name": "importance_sampling", "loss_config": {}, "backward": True}
    packed = forward_backward(engine.model, together, group, **options)
    single = [forward_backward(engine.model, alone, [datum], **options) for datum in group]
    for index, one in enumerate(single):
        np.testing.assert_allclose(packed.logprobs[index], one.logprobs[0], rtol=0, atol=1e-6)
    for mine, theirs in zip(together.adapter.parameters.values(), alone.adapter.parameters.values(), strict=True):
        # The model's norms compute in single precision, also here.
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_a_prompt_costs_one_pass_for_its_group(engine: Engine, group: list[TrainingDatum]) -> None:
    packed = PackedSequences([datum.tokens for datum in group], torch.device("cpu"), torch.float64)
    assert packed.tokens.shape[1] < 0.6 * sum(len(datum.tokens) for datum in group)
