"""The data port as atroposlib's own clients use it, in front of the real Tinker service."""

import asyncio
import os
import time
from collections.abc import AsyncIterator

import httpx
import numpy as np
import openai
import pytest
from atroposlib.envs.server_handling.managed_server import ManagedServer
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from atroposlib.envs.server_handling.sglang_server import SGLangServer

from rl_contract.bundled import bundled_model_folder
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.chat_rendering import chat_renderer
from tinker_atropos.trainer.backend.backend import TinkerBackend
from tinker_atropos.trainer.backend.lora_weights import Training
from tinker_atropos.trainer.backend.policy import Policy

MESSAGES = [{"role": "user", "content": "sort 4 1 3 2"}]


@pytest.fixture
async def backend_training(tinker_service, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Training]:
    for name, value in tinker_service.env_vars.items():
        monkeypatch.setenv(name, value)
    backend = await TinkerBackend.open(TrainerSettings(lora_rank=4), {})
    yield await backend.create("bundled", {})
    await backend.close("success")


@pytest.fixture
async def real_inference(serve_inference, backend_training) -> AsyncIterator:
    async with serve_inference() as inference:
        inference.policy.swap(Policy(0, await backend_training.snapshot()))
        yield inference


@pytest.fixture
def sglang_server(real_inference) -> SGLangServer:
    os.environ["NO_PROXY"] = "127.0.0.1"
    return SGLangServer(
        APIServerConfig(
            server_type="sglang",
            model_name="bundled",
            tokenizer_name=str(bundled_model_folder()),
            base_url=str(real_inference.client.base_url).rstrip("/") + "/v1",
            api_key="x",
            timeout=60,
            health_check=False,
        )
    )


async def test_a_managed_server_gets_tokens_masks_and_true_logprobs(sglang_server, real_inference) -> None:
    server = ManagedServer(sglang_server, tokenizer=sglang_server.tokenizer)
    completion = await server.chat_completion(messages=MESSAGES, n=4, max_tokens=8, temperature=1.0)
    assert len(completion.choices) == 4
    nodes = server.get_state()["nodes"]
    assert len(nodes) == 4
    for node in nodes:
        start = next(at for at, mask in enumerate(node.masked_tokens) if mask != -100)
        sampled = real_inference.remembered(node.tokens[:start], node.tokens[start:])
        np.testing.assert_allclose(node.logprobs[start:], sampled.logprobs_T[start:], atol=1e-6)
        assert set(sampled.policy_step_T[start:]) == {0}


async def test_chat_completions_sample_from_the_policy(sglang_server) -> None:
    completion = await sglang_server.chat_completion(messages=MESSAGES, n=2, max_tokens=8, temperature=1.0)
    texts = [choice.message.content for choice in completion.choices]
    assert all(text and "<|" not in text for text in texts)
    assert [choice.finish_reason for choice in completion.choices] == ["stop", "stop"]


async def test_the_same_seed_samples_the_same_tokens_even_if_it_is_0(real_inference) -> None:
    async def sampled(seed: int) -> list[list[int]]:
        params = {"n": 8, "seed": seed, "max_new_tokens": 24, "temperature": 2}
        answers = await real_inference.client.post("/generate", json={"text": "sort", "sampling_params": params})
        return [answer["output_ids"] for answer in answers.json()]

    first = await sampled(0)
    assert first == await sampled(0)
    assert first != await sampled(1)
    assert len(set(map(tuple, first))) > 1


async def test_finish_reasons_are_correct(real_inference, tokenizer) -> None:
    prompt_T = chat_renderer(tokenizer, "bundled").ids(MESSAGES)
    for max_tokens, reason in ((2, "length"), (20, "stop")):
        body = {"input_ids": prompt_T.tolist(), "sampling_params": {"max_new_tokens": max_tokens}}
        meta = (await real_inference.client.post("/generate", json=body)).json()["meta_info"]
        assert meta["finish_reason"]["type"] == reason


@pytest.fixture
async def openai_client(real_inference) -> AsyncIterator[openai.AsyncOpenAI]:
    os.environ["NO_PROXY"] = "127.0.0.1"
    url = str(real_inference.client.base_url).rstrip("/") + "/v1"
    async with openai.AsyncOpenAI(api_key="x", base_url=url, timeout=60, max_retries=0) as client:
        yield client


async def test_openais_client_stops_where_requested(openai_client) -> None:
    """The bundled model answers `1234` about every second time; `3` ends it before, and is not in the text."""
    completion = await openai_client.chat.completions.create(
        model="bundled", messages=MESSAGES, n=16, max_tokens=8, stop=["3"], seed=0, logprobs=True, user="me"
    )
    stopped = [choice for choice in completion.choices if choice.message.content == "12"]
    assert len(stopped) > 2
    assert {choice.finish_reason for choice in stopped} == {"stop"}
    assert {"".join(entry.token for entry in choice.logprobs.content) for choice in stopped} == {"123"}
    assert all("3" not in choice.message.content for choice in completion.choices)


async def test_sglangs_client_stops_at_token_ids_and_keeps_them(sglang_server, tokenizer) -> None:
    (three,) = tokenizer.encode("3").tolist()
    prompt = chat_renderer(tokenizer, "bundled").ids(MESSAGES).tolist()
    _, outputs, logprobs, reasons = await sglang_server.tokens_and_logprobs_completion(
        input_ids=prompt, n=16, max_tokens=8, temperature=1.0, stop_token_ids=[three], seed=3
    )
    assert sum(output[-1] == three for output in outputs) > 4
    assert all(three not in output[:-1] for output in outputs)
    assert [len(output) for output in outputs] == [len(row) for row in logprobs]
    for output, reason in zip(outputs, reasons, strict=True):
        assert reason == {"type": "stop", "matched": output[-1]}


async def test_openais_client_learns_what_is_not_supported(openai_client) -> None:
    unsupported = ({"frequency_penalty": 1}, {"top_logprobs": 2, "logprobs": True}, {"logit_bias": {"5": 10}})
    for extra in unsupported:
        with pytest.raises(openai.BadRequestError, match=next(iter(extra))):
            await openai_client.chat.completions.create(model="m", messages=MESSAGES, **extra)


async def test_completions_and_logprobs_with_openais_client(openai_client, real_inference, tokenizer) -> None:
    prompt = chat_renderer(tokenizer, "bundled").ids(MESSAGES).tolist()
    completion = await openai_client.completions.create(model="m", prompt=prompt, n=4, max_tokens=8, logprobs=0, seed=5)
    again = await openai_client.completions.create(model="m", prompt=prompt, n=4, max_tokens=8, logprobs=0, seed=5)
    assert [choice.text for choice in again.choices] == [choice.text for choice in completion.choices]
    for choice in completion.choices:
        ids = [*tokenizer.encode(choice.text).tolist(), tokenizer.eos_id]
        remembered = real_inference.remembered(prompt, ids)
        np.testing.assert_allclose(choice.logprobs.token_logprobs, remembered.logprobs_T[len(prompt) :], atol=1e-6)


async def test_top_k_1_and_temperature_0_leave_only_the_most_likely_token(real_inference, tokenizer) -> None:
    prompt = chat_renderer(tokenizer, "bundled").ids(MESSAGES).tolist()
    outputs = []
    for shape in ({"top_k": 1}, {"temperature": 0}):
        body = {"input_ids": prompt, "sampling_params": {"n": 8, "max_new_tokens": 8, **shape}}
        answers = (await real_inference.client.post("/generate", json=body)).json()
        outputs += [tuple(answer["output_ids"]) for answer in answers]
    assert len(outputs) == 16
    assert len(set(outputs)) == 1


async def test_max_tokens_beyond_the_context_are_reduced_and_the_finish_reason_is_length(real_inference) -> None:
    real_inference.generator.context_length = 20
    body = {"text": "sort 1 2", "sampling_params": {"max_new_tokens": 4096, "ignore_eos": True}}
    meta = (await real_inference.client.post("/generate", json=body)).json()["meta_info"]
    assert meta["prompt_tokens"] + meta["completion_tokens"] == 20
    assert meta["finish_reason"]["type"] == "length"


async def test_token_ids_unknown_to_the_model_are_refused(real_inference) -> None:
    response = await real_inference.client.post("/generate", json={"input_ids": [10**6]})
    assert response.status_code == 400
    assert real_inference.failures == []


async def test_a_hundred_requests_at_once(real_inference) -> None:
    body = {"text": "<|im_start|>user\nsort 4 1 3 2<|im_end|>\n<|im_start|>assistant\n"}
    answers = await asyncio.gather(*(real_inference.client.post("/generate", json=body) for _ in range(100)))
    assert {answer.status_code for answer in answers} == {httpx.codes.OK}
    assert real_inference.generator.totals.training.rollouts == 100


LONG = {"input_ids": [5, 6, 7], "sampling_params": {"n": 16, "max_new_tokens": 300, "ignore_eos": True}}
SHORT = {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 1}}


async def test_the_service_stops_sampling_for_a_client_that_left(real_inference) -> None:
    """The model's only thread is free long before the abandoned request would have finished."""
    started = time.monotonic()
    await real_inference.client.post("/generate", json=LONG)
    whole = time.monotonic() - started
    abandoned = asyncio.create_task(real_inference.client.post("/generate", json=LONG))
    await asyncio.sleep(whole / 10)  # the service is working on it
    abandoned.cancel()
    await asyncio.gather(abandoned, return_exceptions=True)
    started = time.monotonic()
    assert (await real_inference.client.post("/generate", json=SHORT)).status_code == 200
    assert time.monotonic() - started < whole / 2
    assert real_inference.generator.totals.cancelled.requests == 1
    assert real_inference.generator.totals.cancelled.rollouts == 16
