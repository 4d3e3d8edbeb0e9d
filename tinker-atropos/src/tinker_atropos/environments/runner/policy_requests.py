"""How an environment asks models: atroposlib's servers, with what they lack here.

* Connections to the inference server are kept: atroposlib opens a session and a connection for each request, which
  costs three times what the request itself does, here and in the trainer.
* Servers beside the trained policy's, such as a judge's or a teacher's, are `env.server.servers[1]` and on.
  atroposlib's ServerManager would build all of them in the way of the first, and send the policy's requests to
  whichever is free. Ours builds each in its own way, and samples from the first only.
* `get_logprobs`, what a teacher is asked, for servers for which atroposlib has none (`vllm` has one, which follows
  redirects). The answer has a row for each token of the prompt: the token itself, then the likeliest in its place,
  with their logprobs. The first token has none. The key goes to the teacher's address only, and nothing that a server
  says but its status gets into an error: it may be another service's.
"""

import contextlib
import functools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import aiohttp
from atroposlib.envs import base
from atroposlib.envs.server_handling.openai_server import OpenAIServer
from atroposlib.envs.server_handling.server_baseline import APIServer
from atroposlib.envs.server_handling.server_manager import ServerManager
from atroposlib.envs.server_handling.sglang_server import SGLangServer
from atroposlib.envs.server_handling.vllm_server import VLLMServer

from tinker_atropos.environments.rollout.rollouts import TransportError

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


class PolicyFirst(list[APIServer]):
    """All servers by index. Iterating, which is how a ServerManager chooses one, gives the trained policy's alone."""

    def __iter__(self) -> Iterator[APIServer]:
        return iter(self[:1])


class PolicyServerManager(ServerManager):  # type: ignore[misc]  # atroposlib has no types
    """`configs` begins with the policy's server."""

    def __init__(self, configs: list[object], *args: object, **kwargs: object) -> None:
        super().__init__(configs[:1], *args, **kwargs)
        others = (ServerManager([config], reasoning_config=self.reasoning_config) for config in configs[1:])
        of_policy: list[object] = self.servers  # type: ignore[has-type]
        self.servers = PolicyFirst([*of_policy, *(each.servers[0] for each in others)])


def install_policy_servers() -> None:
    """For environments that are built from now on."""
    base.ServerManager = PolicyServerManager


def install_prompt_logprobs() -> None:
    """For all servers that are asked from now on."""
    OpenAIServer._get_logprobs_wrapper = of_openai  # noqa: SLF001 -- what atroposlib's servers override
    SGLangServer._get_logprobs_wrapper = of_sglang  # noqa: SLF001 -- as above
    VLLMServer._get_logprobs_wrapper = of_vllm  # noqa: SLF001 -- as above


async def of_openai(server: Any, *, input_ids: list[int], top_k: int = 1, **_settings: Any) -> dict[str, Any]:
    """By vLLM's `prompt_logprobs` of `/v1/completions`, which `tinker-atropos teacher` has, too."""
    request = {
        "model": server.config.model_name,
        "prompt": input_ids,
        "max_tokens": 1,
        "temperature": 0.0,
        "prompt_logprobs": top_k,
    }

    def rows_T(answer: Any) -> Iterable[Mapping[int, float]]:
        return map(_by_name, answer["choices"][0]["prompt_logprobs"])

    return await _asked(server, f"{server.config.base_url}/completions", request, input_ids, rows_T)


async def of_vllm(server: Any, *, input_ids: list[int], top_k: int = 1, **_settings: Any) -> dict[str, Any]:
    """By `prompt_logprobs` of `/generate` of Atropos' example trainer."""
    request = {
        "prompt": {"prompt_token_ids": input_ids},
        "prompt_logprobs": max(1, top_k),
        "n": 1,
        "temperature": 0.0,
        "top_p": 1.0,
        "max_tokens": 1,
    }

    def rows_T(answer: Any) -> Iterable[Mapping[int, float]]:
        found = answer["prompt_logprobs"]
        # Of one sequence, or of each of several.
        return map(_by_name, found[0] if found and isinstance(found[0], list) else found)

    return await _asked(server, f"{server.config.base_url.removesuffix('/v1')}/generate", request, input_ids, rows_T)


async def of_sglang(server: Any, *, input_ids: list[int], top_k: int = 1, **_settings: Any) -> dict[str, Any]:
    """By SGLang's `return_logprob` of `/generate`."""
    request = {
        "input_ids": input_ids,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "return_logprob": True,
        "logprob_start_len": 0,
        "top_logprobs_num": top_k,
    }

    def rows_T(answer: Any) -> Iterable[Mapping[int, float]]:
        selected_T = answer["meta_info"]["input_token_logprobs"]
        top_T = answer["meta_info"].get("input_top_logprobs") or [None] * len(selected_T)
        return map(_by_token, ([selected, *(top or ())] for selected, top in zip(selected_T, top_T, strict=True)))

    return await _asked(server, f"{server.config.base_url.removesuffix('/v1')}/generate", request, input_ids, rows_T)


async def _asked(
    server: Any,
    url: str,
    request: Mapping[str, Any],
    tokens: list[int],
    rows_T: Callable[[Any], Iterable[Mapping[int, float]]],
) -> dict[str, Any]:
    """In the form of atroposlib's `get_logprobs`. Raises TransportError, without a word of what the server says."""
    config = server.config
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=config.timeout), trust_env=True) as session,
        session.post(
            url,
            json=request,
            headers={"Authorization": f"Bearer {config.api_key}"},
            allow_redirects=False,  # the key is for this address
        ) as response,
    ):
        if response.status != 200:
            raise TransportError(f"{url} answers HTTP {response.status}{_MEANINGS.get(response.status, '')}")
        content = await response.read()
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise TransportError(f"{url} answers with something else than a JSON object")
    try:
        rows = list(rows_T(answer))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise TransportError(
            f"{url} answers without prompt_logprobs, or in another form than env.teacher_api says"
        ) from None
    return {
        "prompt_tokens": tokens,
        "prompt_topk_token_ids": [list(row) for row in rows],
        "prompt_topk_logprobs": [list(row.values()) for row in rows],
    }


_MEANINGS: Final = {
    400: ": it refuses the request: does it have the policy's tokenizer, and a context as long?",
    401: ": it refuses the key",
    403: ": it refuses the key",
    404: ": it has no such route, or no model of that name (env.teacher_api, env.teacher_model)",
} | dict.fromkeys((301, 302, 303, 307, 308), ": redirects are not followed, give the address itself")


def _by_name(row: Any) -> dict[int, float]:
    """Of vLLM `{id: {"logprob": …}}`, of Atropos `{id: logprob}`, or a list of these; of the first token null."""
    named = {key: value for part in (row if isinstance(row, list) else [row or {}]) for key, value in part.items()}
    return {int(key): float(told["logprob"] if isinstance(told, dict) else told) for key, told in named.items()}


def _by_token(named: Sequence[Sequence[Any]]) -> dict[int, float]:
    """SGLang names a token as (logprob, id, text); the logprob of the first is null."""
    return {token: logprob for logprob, token, *_ in named if logprob is not None}
