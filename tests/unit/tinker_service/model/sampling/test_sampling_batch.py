"""Sampling in a batch that others join and leave equals sampling each request alone without a cache."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from tests.unit.tinker_service.sampled import finished, new_batch, sampled

from tinker_service.model.engine import Engine
from tinker_service.model.lora import LoraAdapter, LoraSpec
from tinker_service.model.sampling.sample_jobs import Continuation, PromptScoring, SampleJob, SamplingRequest
from tinker_service.model.sampling.sampling_batch import SamplingBatch
from tinker_service.model.sampling.scoring import score_prompts
from tinker_service.model.sampling.sequence_cache import TOKENS_PER_STEP, KeyValues
from tinker_service.service_errors import CANCELLED, DroppedError, RequestError

Prompts = list[tuple[int, ...]]


def request(prompt: tuple[int, ...] = (1,), **changes: object) -> SamplingRequest:
    return dataclasses.replace(SamplingRequest(prompt=prompt, num_samples=1, max_tokens=8), **changes)


def sample(engine: Engine, *requests: SamplingRequest, adapter: LoraAdapter | None = None) -> list[list[Continuation]]:
    return sampled(engine.model, requests, adapter, engine.tokenizer.decode)


def tokens(rows: list[Continuation]) -> list[list[int]]:
    return [row.tokens for row in rows]


def strong_adapter(engine: Engine, seed: int = 2) -> LoraAdapter:
    """An adapter that changes the model: B is not zero."""
    adapter = engine.model.new_adapter(LoraSpec(rank=4, seed=1)).snapshot()
    generator = torch.Generator().manual_seed(seed)
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
        assert one.logprobs == other.logprobs, "bit by bit: two equal runs meet other batches"


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
            full = score_prompts(engine.model, adapter, [(tokens, PromptScoring(logprobs=True))], 2**30)[0].logprobs
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


def test_greedy_takes_the_best_token(engine: Engine, prompts: Prompts) -> None:
    (rows,) = sample(engine, request(prompts[0], temperature=0.0, max_tokens=4))
    expected = list(prompts[0])
    with torch.no_grad():
        for _ in range(4):
            expected.append(int(engine.model.model(torch.tensor([expected])).logits[0, -1].argmax()))
    assert (rows[0].tokens, rows[0].logprobs) == (expected[-4:], [0.0] * 4), "all mass is on them"


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


# --- a batch that changes at every step ------------------------------------------------------------------------------


@contextmanager
def before_forward(engine: Engine, call: Callable[[int], None]) -> Iterator[None]:
    """Within the block each forward pass begins with a call that gets its number of tokens."""
    embeddings = engine.model.model.get_input_embeddings()
    hook = embeddings.register_forward_pre_hook(lambda _module, args: call(args[0].numel()))
    try:
        yield
    finally:
        hook.remove()


def steps(batch: SamplingBatch, count: int) -> None:
    for _ in range(count):
        batch.step()


def test_requests_join_a_running_batch_with_samplers_of_their_own(engine: Engine, prompts: Prompts) -> None:
    adapters = [None, strong_adapter(engine, 2), strong_adapter(engine, 3)]
    requests = [request(prompt, num_samples=2, max_tokens=30, seed=7) for prompt in prompts[:6]]
    jobs = [SampleJob(adapters[index % 3], mine) for index, mine in enumerate(requests)]
    batch = new_batch(engine.model)
    for job in jobs:
        batch.add(job)
        steps(batch, 3)
    together = finished(batch, [])
    assert together == []
    for job in jobs:
        (alone,) = sample(engine, job.request, adapter=job.adapter)
        assert tokens(job.continuations) == tokens(alone)
        for one, other in zip(job.continuations, alone, strict=True):
            np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-9)
    assert len({tuple(map(tuple, tokens(job.continuations))) for job in jobs}) == 6


def test_sequences_of_very_different_lengths(engine: Engine) -> None:
    """Long ones move from part to part; each goes on as if it were alone."""
    lengths = [200, 1, 130, 65, 64, 63, 2]
    requests = [request((5, 6, index), max_tokens=length, seed=index) for index, length in enumerate(lengths)]
    rows = [row for (row,) in sample(engine, *requests)]
    assert [len(row.tokens) for row in rows] == lengths
    assert [row.tokens for row in rows] == [sample(engine, mine)[0][0].tokens for mine in requests]


def test_a_short_request_does_not_wait_for_a_long_prompt(engine: Engine) -> None:
    longer = new_batch(engine.model)
    long = SampleJob(None, request(tuple(range(3, 503)), max_tokens=2, seed=0))
    short = SampleJob(None, request((5, 6, 7), max_tokens=3, seed=0))
    others = [SampleJob(None, request((*range(9 + index, 300 + index),), max_tokens=2, seed=0)) for index in range(4)]
    for job in [long, *others, short]:
        longer.add(job)
    assert sum(len(job.request.prompt) for job in (long, *others)) > 3 * TOKENS_PER_STEP
    steps(longer, 1)
    assert len(short.continuations[0].tokens) == 1
    finished(longer, [])
    (alone,) = sample(engine, long.request)
    assert tokens(long.continuations) == tokens(alone)


def test_a_prompt_is_read_once_for_all_its_samples_and_requests(engine: Engine) -> None:
    read: list[int] = []

    prompt = tuple(range(5, 25))
    with before_forward(engine, read.append):
        sample(engine, *[request(prompt, num_samples=4, max_tokens=2, seed=seed) for seed in range(3)])
    assert read == [32, 16], "20 and 12, padded"


def test_memory_is_bounded_and_what_is_set_back_goes_on_as_before(engine: Engine) -> None:
    memory = 2**20
    batch = new_batch(engine.model, memory=memory)
    requests = [request((5, 6, index), num_samples=4, max_tokens=80, seed=index) for index in range(3)]
    jobs = [SampleJob(None, mine) for mine in requests]
    for job in jobs:
        batch.add(job)
    most, waited = 0, False
    while batch.jobs:
        batch.step()
        most, waited = max(most, batch.cache_bytes), waited or batch.waiting > 0
    assert memory / 2 < most <= memory
    assert waited
    for job in jobs:
        (alone,) = sample(engine, job.request)
        assert tokens(job.continuations) == tokens(alone)


def test_a_sequence_that_can_never_fit_is_refused_and_others_go_on(engine: Engine) -> None:
    batch = new_batch(engine.model, memory=900 * 2**10)
    long_prompt = SampleJob(None, request(tuple(range(3, 400)), max_tokens=2))
    grows = SampleJob(None, request((5, 6), max_tokens=400, seed=1))
    fits = SampleJob(None, request((5, 6, 7), max_tokens=4, seed=1))
    finished(batch, [long_prompt, grows, fits])
    for job, length in ((long_prompt, 397), (grows, 129)):
        error = job.future.exception(0)
        assert isinstance(error, RequestError)
        assert f"a sequence of {length} tokens does not fit into the 0.879 MiB that the service has" in str(error)
        assert "start the service with a larger --memory" in str(error)
    assert len(fits.continuations[0].tokens) == 4


@pytest.mark.parametrize("steps_before", [0, 2])
def test_what_nobody_waits_for_takes_no_further_step(engine: Engine, steps_before: int) -> None:
    gone: list[SampleJob] = []
    batch = new_batch(engine.model)
    long = request((5, 6), max_tokens=50, seed=1)
    canceled, other = SampleJob(None, long), SampleJob(None, long)
    dropped = SampleJob(None, long, has_client=lambda: not gone)
    for job in (canceled, dropped, other):
        job.future.set_running_or_notify_cancel()
        batch.add(job)
    steps(batch, steps_before)
    canceled.future.cancel()
    gone.append(dropped)
    steps(batch, 1)
    assert list(batch.jobs) == [other]
    assert batch.running + batch.waiting == 1
    assert str(canceled.future.exception(0)) == CANCELLED
    assert isinstance(dropped.future.exception(0), DroppedError)
    assert len(canceled.continuations[0].tokens) == steps_before
    finished(batch, [])
    assert tokens(other.continuations) == tokens(sample(engine, long)[0])


def test_without_memory_the_newest_start_again_when_another_has_ended(engine: Engine) -> None:
    """As on a GPU that other programs use: a forward pass of more than 32 tokens fails."""

    def fail(tokens_in_pass: int) -> None:
        if tokens_in_pass > 32:
            raise torch.OutOfMemoryError("CUDA out of memory")

    batch = new_batch(engine.model)
    requests = [request((5,), num_samples=count, max_tokens=9, seed=count) for count in (16, 16, 8, 40)]
    jobs = [SampleJob(None, mine) for mine in requests]
    for job in jobs:
        batch.add(job)
    with before_forward(engine, fail):
        while batch.jobs:
            try:
                batch.step()
            except torch.OutOfMemoryError:
                batch.make_room(RequestError("no memory"))
    assert str(jobs[3].future.exception(0)) == "no memory"
    for job in jobs[:3]:
        assert tokens(job.continuations) == tokens(sample(engine, job.request)[0])


def test_without_memory_for_a_prompt_nothing_is_lost(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, allocate, failures = new_batch(engine.model), KeyValues.resize, [1]
    jobs = [SampleJob(None, request((5, 6, 7), num_samples=2, max_tokens=4, seed=seed)) for seed in range(2)]
    jobs.append(SampleJob(None, request((5, 6), max_tokens=4, seed=2)))

    def resize(self: KeyValues, rows: int, kept: int) -> None:
        if self.capacity == 2 and failures:
            failures.pop()
            raise torch.OutOfMemoryError("CUDA out of memory")
        allocate(self, rows, kept)

    monkeypatch.setattr(KeyValues, "resize", resize)
    for job in jobs:
        batch.add(job)
    with pytest.raises(torch.OutOfMemoryError):
        batch.step()
    batch.make_room(RequestError("no memory"))
    finished(batch, [])
    for job in jobs:
        assert tokens(job.continuations) == tokens(sample(engine, job.request)[0])


def test_what_a_broken_sampler_leaves_behind_touches_no_other(engine: Engine) -> None:
    broken = strong_adapter(engine)
    next(iter(broken.parameters.values())).fill_(torch.nan)
    mine = request((5, 6), num_samples=2, max_tokens=40, seed=3)
    batch = new_batch(engine.model)
    for _ in range(3):
        batch.add(SampleJob(broken, request((5, 6, 7), num_samples=3, max_tokens=20)))
        job = SampleJob(None, mine)
        batch.add(job)
        finished(batch, [])
        assert tokens(job.continuations) == tokens(sample(engine, mine)[0])
