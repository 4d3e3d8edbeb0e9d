"""`/inference/v1/generate` and `/v1/models` over real HTTP, and by the client that they are for."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from rl_contract.bundled import bundled_model_folder
from tinker_atropos.chat.chat_rendering import chat_renderer

PATH = "/inference/v1/generate"
PROGRAM = Path(__file__).with_name("renderers_program.py")


def request_for(ids: list[int], **sampling) -> dict:
    """As renderers' client sends it."""
    params = {"stop_token_ids": [2], "logprobs": 1, "skip_special_tokens": False, **sampling}
    return {"model": "bundled", "token_ids": ids, "sampling_params": params}


async def test_every_sampled_token_has_its_id_and_logprob(inference) -> None:
    ids = inference.tokenizer.encode("sort 4 1 3 2").tolist()
    body = request_for(ids, max_tokens=8, temperature=0.7, top_p=0.9)
    response = await inference.client.post(PATH, json=body, headers={"X-Session-ID": "rollout-1"})
    answer = response.json()
    assert answer.pop("request_id")
    output = inference.sampler.outputs[0]
    content = [
        {"token": f"token_id:{token}", "logprob": pytest.approx(-0.1 * (at + 1))} for at, token in enumerate(output)
    ]
    assert answer == {
        "choices": [{"index": 0, "token_ids": output, "finish_reason": "stop", "logprobs": {"content": content}}],
        "policy_step": 7,
    }
    ((asked_ids, n, settings),) = inference.sampler.asked
    assert (asked_ids, n) == (ids, 1)
    assert (settings.max_tokens, settings.temperature, settings.top_p, settings.stop) == (8, 0.7, 0.9, (2,))


async def test_an_answer_at_the_limit_and_several_answers(inference) -> None:
    inference.sampler.outputs = [[5, 6], [7, 2]]
    body = {**request_for([5], n=2, max_tokens=2), "request_id": "mine"}
    answer = (await inference.client.post(PATH, json=body)).json()
    assert answer["request_id"] == "mine"
    reasons = [(choice["index"], choice["token_ids"], choice["finish_reason"]) for choice in answer["choices"]]
    assert reasons == [(0, [5, 6], "length"), (1, [7, 2], "stop")]


async def test_fields_of_renderers_without_effect(inference) -> None:
    """`routed_experts_prompt_start` comes with each turn that extends a conversation."""
    body = {**request_for([5], routed_experts_prompt_start=3), "cache_salt": "s", "priority": 1, "features": None}
    assert (await inference.client.post(PATH, json=body)).status_code == 200
    assert inference.sampler.asked[0][2].max_tokens == 64


REFUSED = [
    ({}, "token_ids"),
    ({"token_ids": "sort"}, "token_ids"),
    ({"token_ids": []}, "empty"),
    ({"token_ids": [5], "prompt": "sort"}, "prompt"),
    ({"token_ids": [5], "features": {"mm_hashes": {}}}, "features"),
    ({"token_ids": [5], "content_parts": [{"type": "image_url", "url": "x"}]}, "content_parts"),
    ({"token_ids": [5], "stream": True}, "stream"),
    (request_for([5], max_tokens=0), "sampling_params.max_tokens"),
    (request_for([5], max_new_tokens=8), "max_new_tokens"),
    (request_for([5], logprobs=5), "logprobs 5"),
    (request_for([5], logprobs=-1), "logprobs -1"),
    (request_for([5], prompt_logprobs=1), "prompt_logprobs"),
    (request_for([5], reasoning_effort="low"), "reasoning_effort"),
    (request_for([5], temperature=-1), "sampling_params.temperature"),
]


@pytest.mark.parametrize(("body", "field"), REFUSED, ids=[field for _, field in REFUSED])
async def test_a_bad_request_names_its_field(inference, body, field) -> None:
    response = await inference.client.post(PATH, json=body)
    assert response.status_code == 400
    assert field in response.json()["error"]["message"]
    assert inference.sampler.asked == []


async def test_the_model_and_its_context(inference) -> None:
    card = {"id": "bundled", "object": "model", "created": 0, "owned_by": "tinker"}
    for length in (None, 16):
        inference.generator.context_length = length
        answer = (await inference.client.get("/v1/models")).json()
        assert answer == {"object": "list", "data": [{**card, "context_length": length}]}


async def asked_by_verifiers(url: str) -> list[dict]:
    """What came of the program's requests."""
    python = os.environ.get("RL_VERIFIERS_PYTHON")
    if not python:
        pytest.skip("needs RL_VERIFIERS_PYTHON: a Python with verifiers 0.4.0 (pip install tinker-atropos[verifiers])")
    env_vars = {**os.environ, "HF_HUB_OFFLINE": "1", "NO_PROXY": "127.0.0.1"}
    program = await asyncio.create_subprocess_exec(
        python, PROGRAM, url, str(bundled_model_folder()), stdout=asyncio.subprocess.PIPE, env=env_vars
    )
    try:
        printed, _ = await asyncio.wait_for(program.communicate(), 120)
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    assert program.returncode == 0
    return [json.loads(line) for line in printed.splitlines()]


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/trainer/inference")
async def test_verifiers_own_client(process, inference) -> None:
    """Its prompt is what our tokenizer renders, and a prompt that is too long is counted here, not by the client."""
    inference.generator.context_length = 1024
    begun = await inference.client.post("/rl/evaluation", json={"due_step": 7})
    assert begun.json() == {"step": 7}
    trained, evaluated, refused, too_long = await asked_by_verifiers(str(inference.client.base_url).rstrip("/"))
    prompt = chat_renderer(inference.tokenizer, "bundled").ids([{"role": "user", "content": "sort 4 1 3 2"}]).tolist()
    assert trained == evaluated
    assert trained["prompt_ids"] == prompt
    assert trained["completion_ids"] == inference.sampler.outputs[0]
    assert trained["logprobs"] == pytest.approx([-0.1, -0.2, -0.3, -0.4, -0.5])
    assert (trained["text"], trained["finish_reason"]) == ("1234", "stop")
    assert refused["status"] == 400
    assert "min_p is not supported" in refused["message"]
    assert too_long["status"] == 400
    assert "context_length_exceeded" in too_long["message"]
    assert inference.generator.totals.context_overflows == 1
    assert inference.generator.totals.training.rollouts == inference.generator.totals.evaluation.rollouts == 1
    settings = inference.sampler.asked[0][2]
    assert (settings.max_tokens, settings.temperature, settings.top_p) == (8, 0.5, 0.9)
    assert len(inference.ledger) == 1
