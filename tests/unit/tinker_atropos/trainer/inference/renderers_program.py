"""verifiers' own client at an inference server: `python renderers_program.py BASE_URL TOKENIZER_FOLDER`, by a Python
that has verifiers. Prints what came of each request as a line of JSON.
"""

import asyncio
import json
import sys
from typing import Any

import verifiers.v1 as vf
from renderers import DefaultRendererConfig
from verifiers.v1.clients.train import TrainClient
from verifiers.v1.dialects import ChatDialect

LONG = "4 " * 4096


async def ask(client: TrainClient, text: str, **sampling: Any) -> dict[str, Any]:
    body = {"model": "bundled", "messages": [{"role": "user", "content": text}]}
    try:
        answer = await client.get_response(ChatDialect(), body, vf.SamplingConfig(**sampling), session_id="rollout-1")
    except vf.ProviderError as error:
        return {"status": error.status_code, "message": str(error)}
    assert answer.tokens is not None
    tokens = answer.tokens
    return {
        "text": answer.message.content,
        "finish_reason": answer.finish_reason,
        "prompt_ids": tokens.prompt_ids,
        "completion_ids": tokens.completion_ids,
        "logprobs": tokens.completion_logprobs,
    }


async def main(base_url: str, tokenizer: str) -> None:
    config = vf.TrainClientConfig(
        base_url=f"{base_url}/v1",
        api_key_var="NO_KEY",
        renderer_model_name=tokenizer,
        renderer=DefaultRendererConfig(),
    )
    client = TrainClient(config)
    mark = {"rl_purpose": "evaluation", "rl_evaluation": 7}
    for text, sampling in (
        ("sort 4 1 3 2", {"temperature": 0.5, "top_p": 0.9, "max_tokens": 8}),
        ("sort 4 1 3 2", {"temperature": 1.0, "max_tokens": 8, **mark}),
        ("sort 4 1 3 2", {"min_p": 0.5}),
        (LONG, {"max_tokens": 8}),
    ):
        print(json.dumps(await ask(client, text, **sampling)), flush=True)
    await client.close()


asyncio.run(main(*sys.argv[1:]))
