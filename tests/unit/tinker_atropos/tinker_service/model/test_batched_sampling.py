"""Batched sampling with a cache equals sampling each request alone without a cache."""

import dataclasses

import numpy as np
import pytest
import torch

from tinker_atropos.tinker_service.model.batched_sampling import (
    Continuation,
    SamplingRequest,
    choose,
    distribution,
    generate,
)
from tinker_atropos.tinker_service.model.engine import Engine
from tinker_atropos.tinker_service.model.lora import Adapter, LoraSpec
from tinker_atropos.tinker_service.model.scoring import PromptScoring, score_prompts

Prompts = list[tuple[int, ...]]


def request(prompt: tuple[int, ...] = (1,), **changes: object) -> SamplingRequest:
    return dataclasses.replace(SamplingRequest(prompt=prompt, num_samples=1, max_tokens=8), **changes)


def sample(engine: Engine, *requests: SamplingRequest, adapter: Adapter | None = None) -> list[list[Continuation]]:
    return generate(engine.model, adapter, requests, engine.tokenizer.decode)


def tokens(rows: list[Continuation]) -> list[list[int]]:
    return [row.tokens for row in rows]


def strong_adapter(engine: Engine) -> Adapter:
    """An adapter that changes the model: B is not zero."""
    adapter = engine.model.new_adapter(LoraSpec(rank=4, seed=1)).snapshot()
    generator = torch.Generator().manual_seed(2)
    for name, tensor in adapter.parameters.items():
        if "lora_B" in name:
            tensor.normal_(0, 0.05, generator=generator)
    return adapter


@pytest.mark.parametrize("seed", [0, 7])
def test_a_seeded_request_gives_the_same_result_in_any_batch(engine: Engine, prompts: Prompts, seed: int) -> None:
    mine = request(prompts[0], num_samples=4, seed=seed)
    others = [
        request(prompts[1], num_samples=3, temperature=2.0),
        request((*prompts[2], *prompts[3]), num_samples=2, max_tokens=20, top_k=5),
        request((1, 2, 3), temperature=0.0),
    ]
    (alone,) = sample(engine, mine)
    together = sample(engine, *others[:2], mine, others[2])[2]
    assert tokens(together) == tokens(alone)
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


def test_samples_of_one_request_differ_and_so_do_seeds(engine: Engine) -> None:
    flat = request((5, 6), num_samples=4, temperature=5.0, seed=0)
    first, again, other = (tokens(sample(engine, r)[0]) for r in (flat, flat, dataclasses.replace(flat, seed=1)))
    assert first == again
    assert len({tuple(row) for row in first + other}) == 8


def test_unseeded_requests_differ(engine: Engine) -> None:
    flat = request((5, 6), num_samples=2, temperature=5.0)
    assert tokens(sample(engine, flat)[0]) != tokens(sample(engine, flat)[0])


@pytest.mark.parametrize("adapted", [False, True])
def test_logprobs_at_temperature_1_are_the_models(engine: Engine, prompts: Prompts, adapted: bool) -> None:
    """Sampled in a padded batch with a cache, scored alone without one."""
    adapter = strong_adapter(engine) if adapted else None
    requests = [
        request(prompts[0], num_samples=2),
        request((1, 2, 3), num_samples=2, max_tokens=12, stop_tokens=frozenset({200})),
    ]
    for rows in sample(engine, *requests, adapter=adapter):
        for row in rows:
            tokens = (*row.request.prompt, *row.tokens)
            full = score_prompts(engine.model, adapter, [(tokens, PromptScoring(logprobs=True))])[0].logprobs
            assert full is not None
            np.testing.assert_allclose(row.logprobs, full[len(row.request.prompt) :], atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [{"temperature": 0.3}, {"temperature": 2.0}, {"top_k": 3}, {"top_p": 0.5}, {"temperature": 1.5, "top_k": 9}],
)
def test_logprobs_are_of_the_distribution_sampled_from(engine: Engine, changes: dict[str, float]) -> None:
    """Step by step against the definition, worked out in numpy: scale, keep the best, renormalize."""
    mine = request((5, 6, 7), num_samples=2, seed=1, **changes)
    for row in sample(engine, mine)[0]:
        for step, (token, logprob) in enumerate(zip(row.tokens, row.logprobs, strict=True)):
            with torch.no_grad():
                context = torch.tensor([[*mine.prompt, *row.tokens[:step]]])
                logits = engine.model.model(context).logits[0, -1].numpy() / mine.temperature
            probabilities = np.exp(logits - logits.max())
            probabilities /= probabilities.sum()
            order = np.argsort(-probabilities)
            before = np.cumsum(probabilities[order]) - probabilities[order]
            kept = [index for rank, index in enumerate(order) if before[rank] < mine.top_p]
            kept = kept[: mine.top_k] if mine.top_k > 0 else kept
            assert token in kept
            assert logprob == pytest.approx(np.log(probabilities[token] / probabilities[kept].sum()), abs=1e-6)


def test_greedy_puts_all_mass_on_its_token(engine: Engine) -> None:
    assert sample(engine, request((5, 6, 7), temperature=0.0))[0][0].logprobs == [0.0] * 8


def test_the_likeliest_tokens_are_next_to_the_sampled_one(engine: Engine) -> None:
    with_top, without = sample(engine, request((5, 6), top_logprobs=4, top_k=3), request((5, 6)))
    top = with_top[0].top_logprobs
    assert without[0].top_logprobs is None
    assert top is not None
    assert top.tokens.shape == top.logprobs.shape == (8, 4)
    assert (np.diff(top.logprobs[:, :3]) <= 0).all()
    assert np.isneginf(top.logprobs[:, 3]).all()
    for step, (token, logprob) in enumerate(zip(with_top[0].tokens, with_top[0].logprobs, strict=True)):
        rank = top.tokens[step].tolist().index(token)
        assert top.logprobs[step, rank] == pytest.approx(logprob, abs=1e-6)


def test_an_abandoned_request_takes_no_further_step(engine: Engine) -> None:
    asked: list[int] = []

    def given_up(index: int) -> bool:
        asked.append(index)
        return index == 0 and asked.count(0) > 2

    requests = [request((5, 6), max_tokens=50), request((5, 6), max_tokens=9)]
    stopped, other = generate(engine.model, None, requests, engine.tokenizer.decode, given_up)
    assert (len(stopped[0].tokens), stopped[0].stop_reason) == (3, None)
    assert (len(other[0].tokens), other[0].stop_reason) == (9, "length")


def test_greedy_takes_the_best_token(engine: Engine, prompts: Prompts) -> None:
    (rows,) = sample(engine, request(prompts[0], temperature=0.0, max_tokens=4))
    expected = list(prompts[0])
    with torch.no_grad():
        for _ in range(4):
            expected.append(int(engine.model.model(torch.tensor([expected])).logits[0, -1].argmax()))
    assert rows[0].tokens == expected[-4:]


def test_stops(engine: Engine, prompts: Prompts) -> None:
    greedy = request(prompts[0], temperature=0.0, max_tokens=20)
    end = next(iter(engine.stop_tokens))
    at_end, nowhere, at_string = (
        rows[0]
        for rows in sample(
            engine,
            dataclasses.replace(greedy, stop_tokens=engine.stop_tokens),
            greedy,
            dataclasses.replace(
                greedy, stop_strings=("no", engine.tokenizer.decode(sample(engine, greedy)[0][0].tokens[1:3]))
            ),
        )
    )
    assert (at_end.tokens[-1], len(at_end.tokens), at_end.stop_reason) == (end, 5, "stop")
    assert (len(nowhere.tokens), nowhere.stop_reason) == (20, "length")
    assert nowhere.tokens[:5] == at_end.tokens
    assert (at_string.tokens, at_string.stop_reason) == (at_end.tokens[:3], "stop")


def test_length_limits_differ_within_a_batch(engine: Engine, prompts: Prompts) -> None:
    batch = [request(prompts[0], max_tokens=n, num_samples=n) for n in (1, 5, 3)]
    assert [[len(row.tokens) for row in rows] for rows in sample(engine, *batch)] == [[1], [5] * 5, [3] * 3]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0.1, 0.2, 0.3, 0.4]),
        ({"temperature": 0.5}, [1 / 30, 4 / 30, 9 / 30, 16 / 30]),
        ({"top_k": 2}, [0, 0, 3 / 7, 4 / 7]),
        ({"top_k": 9}, [0.1, 0.2, 0.3, 0.4]),
        ({"top_p": 0.41}, [0, 0, 3 / 7, 4 / 7]),
        ({"top_p": 0.4}, [0, 0, 0, 1]),
        ({"top_k": 3, "top_p": 0.5}, [0, 0, 3 / 7, 4 / 7]),
        ({"temperature": 0.0}, [0, 0, 0, 1]),
    ],
)
def test_draws_follow_the_distribution(changes: dict[str, float], expected: list[float]) -> None:
    """A grid of draws lands on each token in proportion to its probability; rows keep their own parameters."""
    draws = torch.arange(0.0005, 1, 0.001, dtype=torch.float64)
    rows = [request(**changes), request(temperature=1.7)] * len(draws)
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log().repeat(len(rows), 1)
    chosen = choose(distribution(logits, rows), draws.repeat_interleave(2))[::2]
    shares = torch.bincount(chosen, minlength=4) / len(draws)
    np.testing.assert_allclose(shares.numpy(), expected, atol=0.0015)
