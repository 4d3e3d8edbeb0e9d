"""The data port as atroposlib's own clients use it, in front of the real Tinker service."""

import asyncio
import os
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
from atroposlib.envs.server_handling.managed_server import ManagedServer
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from atroposlib.envs.server_handling.sglang_server import SGLangServer

from tinker_atropos.bundled import bundled_model_folder
from tinker_atropos.trainer.backend import Backend, Training
from tinker_atropos.trainer.policy import Policy

MESSAGES = [{"role": "user", "content": "sort 4 1 3 2"}]


@pytest.fixture
async def training(tinker_service, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Training]:
    for name, value in tinker_service.env_vars.items():
        monkeypatch.setenv(name, value)
    backend = await Backend.open(60, {})
    yield await backend.create("bundled", rank=4, seed=0, metadata={})
    await backend.close("success")


@pytest.fixture
async def real_inference(serve_inference, training) -> AsyncIterator:
    async with serve_inference() as inference:
        inference.policy.swap(Policy(0, await training.snapshot()))
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
        sampled = real_inference.ledger.find(
            np.array(node.tokens[:start]), np.array(node.tokens[start:]), np.array(node.logprobs[start:])
        )
        assert sampled is not None
        np.testing.assert_allclose(node.logprobs[start:], sampled.logprobs_T, atol=1e-6)
        assert sampled.policy_step == 0


async def test_chat_completions_sample_from_the_policy(sglang_server) -> None:
    completion = await sglang_server.chat_completion(messages=MESSAGES, n=2, max_tokens=8, temperature=1.0)
    texts = [choice.message.content for choice in completion.choices]
    assert all(text and "<|" not in text for text in texts)
    assert [choice.finish_reason for choice in completion.choices] == ["stop", "stop"]


async def test_the_same_seed_samples_the_same_tokens_also_when_it_is_0(real_inference) -> None:
    async def sampled(seed: int) -> list[list[int]]:
        params = {"n": 8, "seed": seed, "max_new_tokens": 24, "temperature": 2}
        answers = await real_inference.client.post("/generate", json={"text": "sort", "sampling_params": params})
        return [answer["output_ids"] for answer in answers.json()]

    first = await sampled(0)
    assert first == await sampled(0)
    assert first != await sampled(1)
    assert len(set(map(tuple, first))) > 1


async def test_finish_reasons_are_true(real_inference, tokenizer) -> None:
    prompt_T = tokenizer.render_chat(MESSAGES, None)
    for max_tokens, reason in ((2, "length"), (20, "stop")):
        body = {"input_ids": prompt_T.tolist(), "sampling_params": {"max_new_tokens": max_tokens}}
        meta = (await real_inference.client.post("/generate", json=body)).json()["meta_info"]
        assert meta["finish_reason"]["type"] == reason


async def test_token_ids_that_the_model_does_not_have_are_refused(real_inference) -> None:
    response = await real_inference.client.post("/generate", json={"input_ids": [10**6]})
    assert response.status_code == 400
    assert real_inference.failures == []


async def test_hundred_requests_at_once(real_inference) -> None:
    body = {"text": "<|im_start|>user\nsort 4 1 3 2<|im_end|>\n<|im_start|>assistant\n"}
    answers = await asyncio.gather(*(real_inference.client.post("/generate", json=body) for _ in range(100)))
    assert {answer.status_code for answer in answers} == {httpx.codes.OK}
    assert real_inference.generator.totals.samples == 100
