"""The scripted policy over real HTTP, in a thread of its own."""

from collections import Counter

import httpx
import numpy as np
import pytest

from tinker_atropos.chat.sampling import Ints, Sample, SamplingSettings
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.check.scripted_policy import RequestLog, ScriptedPolicy, ScriptedSampler
from tinker_atropos.trainer.trajectories.sampling_probe import PROBES

CHAT = {"messages": [{"role": "user", "content": "sort 4 1 3 2"}], "max_tokens": 8}


def ask(url: str) -> None:
    """A synchronous client, as some environments have it."""
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        answer = client.post("/v1/chat/completions", json=CHAT)
        assert answer.json()["choices"][0]["message"]["content"] == "1234"
        for _ in range(2):
            assert client.post("/v1/chat/completions", json={**CHAT, "echo": True}).status_code == 400
        assert client.post("/v1/embeddings", json={}).status_code == 404


async def test_a_client_that_blocks_the_loop_is_answered_and_counted() -> None:
    tokenizer = Tokenizer("bundled")
    policy = ScriptedPolicy(tokenizer, seed=0)
    policy.sampler.expect("1234", ["no"])
    requests, refused = Counter[str](), Counter[str]()
    with policy.served(RequestLog(policy.app(tokenizer, 64, "bundled"), requests, refused)):
        ask(policy.url)
    assert requests == {"/v1/chat/completions": 3, "/v1/embeddings": 1}
    assert refused == {
        "/v1/chat/completions: 400 echo is not supported: leave it out, or send false": 2,
        "/v1/embeddings: 404 Not Found": 1,
    }
    assert len(policy.ledger) == 1


EOS = 2


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer("bundled")


@pytest.fixture
def sampler(tokenizer: Tokenizer) -> ScriptedSampler:
    sampler = ScriptedSampler(tokenizer, seed=3)
    sampler.expect("1234", ["4321"])
    return sampler


def prompt(tokenizer: Tokenizer, text: str = "sort 4 1 3 2") -> Ints:
    return tokenizer.encode(text)


def texts(tokenizer: Tokenizer, samples: list[Sample]) -> list[str]:
    return [tokenizer.decode(sample.tokens_T) for sample in samples]


async def test_answers_take_turns_and_end(tokenizer: Tokenizer, sampler: ScriptedSampler) -> None:
    samples = await sampler.sample(prompt(tokenizer), 5, SamplingSettings(max_tokens=64))
    assert texts(tokenizer, samples)[:3] == ["1234", "4321", ""]
    assert texts(tokenizer, samples)[4] == "1234"
    assert len(samples[3].tokens_T) > 1
    assert {(int(sample.tokens_T[-1]), sample.stop_reason) for sample in samples} == {(EOS, "stop")}
    assert all(len(each.logprobs_T) == len(each.tokens_T) and (each.logprobs_T <= 0).all() for each in samples)


async def test_without_a_gold_answer_there_is_none(tokenizer: Tokenizer, sampler: ScriptedSampler) -> None:
    sampler.expect(None, ["4321"])
    samples = await sampler.sample(prompt(tokenizer), 4, SamplingSettings(max_tokens=64))
    assert texts(tokenizer, samples)[:2] == ["4321", ""]
    assert texts(tokenizer, samples)[3] == "4321"


async def test_wrong_answers_take_turns_too(tokenizer: Tokenizer, sampler: ScriptedSampler) -> None:
    sampler.expect("1234", ["4321", "no"])
    samples = await sampler.sample(prompt(tokenizer), 8, SamplingSettings(max_tokens=64))
    assert texts(tokenizer, samples)[1::4] == ["4321", "no"]


async def test_one_request_and_several_give_the_same(tokenizer: Tokenizer) -> None:
    answers = []
    for sizes in ((8,), (1,) * 8, (3, 5)):
        sampler = ScriptedSampler(tokenizer, seed=3)
        sampler.expect("1234", ["4321"])
        drawn = [await sampler.sample(prompt(tokenizer), n, SamplingSettings(max_tokens=64)) for n in sizes]
        answers.append([sample.tokens_T.tolist() for samples in drawn for sample in samples])
    assert answers[0] == answers[1] == answers[2]


async def test_a_limit_cuts(tokenizer: Tokenizer, sampler: ScriptedSampler) -> None:
    samples = await sampler.sample(prompt(tokenizer), 4, SamplingSettings(max_tokens=2))
    assert [len(sample.tokens_T) for sample in samples] == [2, 2, 1, 2]
    assert [sample.stop_reason for sample in samples] == ["length", "length", "stop", "length"]


STOPS = {
    "a token": ((7,), [7]),
    "the end of the turn as text": (("x", "<|im_end|>"), [EOS]),
    "none": ((), []),
}


@pytest.mark.parametrize(("stop", "end"), STOPS.values(), ids=STOPS)
async def test_a_stop_ends_an_answer(
    tokenizer: Tokenizer, sampler: ScriptedSampler, stop: tuple[str, ...], end: list[int]
) -> None:
    (sample,) = await sampler.sample(prompt(tokenizer), 1, SamplingSettings(max_tokens=64, stop=stop))
    gold = tokenizer.encode("1234").tolist()
    assert sample.tokens_T.tolist() == [*gold, *end]
    assert sample.stop_reason == ("stop" if end else "length")


async def test_an_answer_ends_with_the_stop_in_it(tokenizer: Tokenizer, sampler: ScriptedSampler) -> None:
    (sample,) = await sampler.sample(prompt(tokenizer), 1, SamplingSettings(max_tokens=64, stop=("3", "<|im_end|>")))
    assert (texts(tokenizer, [sample]), sample.stop_reason) == (["123"], "stop")


async def test_a_conversation_stays_what_it_began_as(tokenizer: Tokenizer, sampler: ScriptedSampler) -> None:
    begun = prompt(tokenizer)
    first = await sampler.sample(begun, 3, SamplingSettings(max_tokens=64))
    for answer in first:
        longer = np.concatenate([begun, answer.tokens_T, prompt(tokenizer, "and again")])
        (following,) = await sampler.sample(longer, 1, SamplingSettings(max_tokens=64))
        assert following.tokens_T.tolist() == answer.tokens_T.tolist()


async def test_its_logprobs_are_of_what_it_drew_from(tokenizer: Tokenizer, sampler: ScriptedSampler) -> None:
    for settings in PROBES.values():
        (sample,) = await sampler.sample(prompt(tokenizer), 1, settings)
        assert not sample.logprobs_T.any()
    logprobs_T = await sampler.logprobs(prompt(tokenizer))
    assert np.isnan(logprobs_T[0])
    assert (logprobs_T[1:] < 0).all()
