"""`get_logprobs` of servers for which atroposlib has none: what a teacher is asked. Of its own, `vllm` has one.

The answer has a row for each token of the prompt: the token itself, then the likeliest in its place, with their
logprobs. The first token has none.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import aiohttp
from atroposlib.envs.server_handling.openai_server import OpenAIServer
from atroposlib.envs.server_handling.sglang_server import SGLangServer

from tinker_atropos.environments.rollout.rollouts import TransportError

SHOWN_CHARACTERS = 300


def install() -> None:
    """For all servers that are asked from now on."""
    OpenAIServer._get_logprobs_wrapper = of_openai  # noqa: SLF001 -- what atroposlib's servers override
    SGLangServer._get_logprobs_wrapper = of_sglang  # noqa: SLF001 -- as above


async def of_openai(server: Any, *, input_ids: list[int], top_k: int = 1, **_settings: Any) -> dict[str, Any]:
    """By vLLM's `prompt_logprobs` of `/v1/completions`, which `tinker-atropos teacher` has, too."""
    answer = await server.openai.completions.create(
        model=server.config.model_name,
        prompt=input_ids,
        max_tokens=1,
        temperature=0.0,
        extra_body={"prompt_logprobs": top_k},
    )
    rows_T = getattr(answer.choices[0], "prompt_logprobs", None)
    if rows_T is None:
        raise TransportError(f"{server.config.base_url} answers without prompt_logprobs, which vLLM's completions have")
    return normalized(input_ids, ({int(key): told["logprob"] for key, told in (row or {}).items()} for row in rows_T))


async def of_sglang(server: Any, *, input_ids: list[int], top_k: int = 1, **_settings: Any) -> dict[str, Any]:
    """By SGLang's `return_logprob` of `/generate`."""
    config = server.config
    request = {
        "input_ids": input_ids,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "return_logprob": True,
        "logprob_start_len": 0,
        "top_logprobs_num": top_k,
    }
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=config.timeout)) as session,
        session.post(
            f"{config.base_url.removesuffix('/v1')}/generate",
            json=request,
            headers={"Authorization": f"Bearer {config.api_key}"},
        ) as response,
    ):
        if response.status != 200:
            said = (await response.text())[:SHOWN_CHARACTERS]
            raise TransportError(f"{config.base_url} answers HTTP {response.status}: {said}")
        told = (await response.json())["meta_info"]
    selected_T = told["input_token_logprobs"]
    top_T = told.get("input_top_logprobs") or [None] * len(selected_T)
    named_T = ([selected, *(top or ())] for selected, top in zip(selected_T, top_T, strict=True))
    return normalized(input_ids, map(_by_token, named_T))


def _by_token(named: Sequence[Sequence[Any]]) -> dict[int, float]:
    """SGLang names a token as (logprob, id, text); the logprob of the first is null."""
    return {token: logprob for logprob, token, *_ in named if logprob is not None}


def normalized(tokens: list[int], rows_T: Iterable[Mapping[int, float]]) -> dict[str, Any]:
    """In the form of atroposlib's `get_logprobs`."""
    rows = list(rows_T)
    return {
        "prompt_tokens": tokens,
        "prompt_topk_token_ids": [list(row) for row in rows],
        "prompt_topk_logprobs": [list(row.values()) for row in rows],
    }
