"""Requests to the inference server on connections that are kept: atroposlib opens a session and a connection for each,
which costs three times what the request itself does, here and in the trainer.
"""

import contextlib
import functools
from collections.abc import AsyncIterator, Iterable
from typing import Any

import aiohttp
from atroposlib.envs.server_handling.sglang_server import SGLangServer

Answer = tuple[list[int], list[list[int]], list[list[float]], list[Any]]
"""The prompt's token ids; for each completion its token ids, their logprobs, and why it ended."""


@contextlib.asynccontextmanager
async def kept_connections(servers: Iterable[Any]) -> AsyncIterator[None]:
    """Let sglang servers share their connections while the block runs. A server that overrides its requests keeps them.

    As many as requests wait: atroposlib bounds these itself.
    """
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        for server in servers:
            if type(server) is SGLangServer:
                server._tokens_and_logprobs_completion_wrapper = functools.partial(generate, session, server)  # noqa: SLF001 -- its only request to `/generate`
        yield


async def generate(session: aiohttp.ClientSession, server: Any, *, model: str, **settings: Any) -> Answer:  # noqa: ARG001 -- the server has one model
    """What `SGLangServer._tokens_and_logprobs_completion_wrapper` does, on a session of ours."""
    text = settings.pop("prompt", None)
    prompt: list[int] = settings.pop("input_ids") if "input_ids" in settings else server.tokenizer.encode(text)
    if len(prompt) >= 2 and prompt[0] == server.tokenizer.bos_token_id == prompt[1]:
        prompt = prompt[1:]
    if "max_tokens" in settings:
        settings["max_new_tokens"] = settings.pop("max_tokens")
    config = server.config
    async with session.post(
        f"{config.base_url.replace('/v1', '')}/generate",
        json={
            "input_ids": prompt,
            "sampling_params": settings,
            "return_logprob": True,
            "return_text_in_logprobs": False,
        },
        headers={"Authorization": f"Bearer {config.api_key}"} if config.api_key else {},
        timeout=aiohttp.ClientTimeout(total=config.timeout),
    ) as response:
        response.raise_for_status()
        answer = await response.json()
    told = [each.get("meta_info", {}) for each in (answer if isinstance(answer, list) else [answer])]
    sampled = [each.get("output_token_logprobs", []) for each in told]
    return (
        prompt,
        [[token for _, token, *_ in tokens] for tokens in sampled],
        [[logprob for logprob, *_ in tokens] for tokens in sampled],
        [each.get("finish_reason") for each in told],
    )
