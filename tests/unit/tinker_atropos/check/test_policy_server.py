"""The scripted policy over real HTTP, in a thread of its own."""

from collections import Counter

import httpx

from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.check.policy_server import RequestLog, ScriptedPolicy

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
