"""Sessions over real HTTP, with a scripted policy: keys, ends, and the accounts of every token."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_contract.scored_group import PROMPT_MASK
from tinker_atropos.chat.chat_rendering import chat_renderer
from tinker_atropos.chat.sampling import Sample, SamplingSettings
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.environments.sessions.rollout_session import RolloutSession, SentMessages, SessionServer

TOKENIZER = Tokenizer("bundled")
EOS = 2
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2,   "b": [3]}}\n</tool_call>'
ASKED = [{"role": "user", "content": "2 + 3"}]


class ScriptedPolicy:
    """Says `outputs` one after the other; each sampled token has a logprob of its own."""

    def __init__(self, *texts: str) -> None:
        self.outputs = itertools.cycle([[*TOKENIZER.encode(text).tolist(), EOS] for text in texts])
        self.prompts: list[list[int]] = []
        self.sampled: dict[float, tuple[int, list[int]]] = {}  # by the logprob: the token, and all before it
        self.settings: list[SamplingSettings] = []
        self.hold: asyncio.Event | None = None
        self.error: Exception | None = None

    async def sample(self, prompt: list[int], n: int, wanted: SamplingSettings) -> list[Sample]:
        self.prompts.append(prompt)
        self.settings.append(wanted)
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        return [self._sample(prompt, next(self.outputs)[: wanted.max_tokens]) for _ in range(n)]

    def _sample(self, prompt: list[int], tokens: list[int]) -> Sample:
        logprobs = -(np.arange(len(tokens), dtype=np.float64) + len(self.sampled) + 1) / 1024
        for at, (token, logprob) in enumerate(zip(tokens, logprobs.tolist(), strict=True)):
            self.sampled[logprob] = (token, [*prompt, *tokens[:at]])
        return Sample(np.array(tokens, np.int64), logprobs, "stop" if tokens[-1] == EOS else "length")


def check_accounts(session: RolloutSession, policy: ScriptedPolicy) -> None:
    """Every sampled token is trained once, with its own logprob, after the very tokens that it was sampled after."""
    trained: dict[float, tuple[int, list[int]]] = {}
    for sequence in session.sequences():
        for at, (token, mask, logprob) in enumerate(
            zip(sequence.tokens, sequence.masks, sequence.logprobs, strict=True)
        ):
            if mask != PROMPT_MASK:
                assert logprob not in trained
                trained[logprob] = (token, sequence.tokens[:at])
    assert trained == policy.sampled


@pytest.fixture
async def session_server() -> AsyncIterator[SessionServer]:
    server = SessionServer(chat_renderer(TOKENIZER, "bundled"), "bundled", max_length=400)
    await server.start()
    yield server
    await server.close()


@pytest.fixture
async def http_client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        yield client


async def ask(client: httpx.AsyncClient, session: RolloutSession, messages: list, **fields: Any) -> list[dict]:
    response = await client.post(
        f"{session.base_url}/chat/completions",
        json={"messages": messages, "tools": [ADD], **fields},
        headers={"Authorization": f"Bearer {session.api_key}"},
    )
    assert response.status_code == 200, response.text
    return [choice["message"] for choice in response.json()["choices"]]


async def test_a_conversation_with_tools_is_one_sequence(session_server, http_client) -> None:
    """The call goes back in another spelling, and is still the policy's own."""
    policy = ScriptedPolicy(f"I add.\n{CALL}", "5")
    session = session_server.begin(policy.sample)
    (said,) = await ask(http_client, session, ASKED)
    (call,) = said["tool_calls"]
    spelled = {**call, "function": {"name": "add", "arguments": '{"b":[3],"a":2}'}}
    history = [*ASKED, {**said, "tool_calls": [spelled]}, {"role": "tool", "tool_call_id": call["id"], "content": "5"}]
    (said,) = await ask(http_client, session, history)
    assert said["content"] == "5"
    (sequence,) = session.sequences()
    text = TOKENIZER.verbatim(np.array(sequence.tokens))
    assert f"assistant\nI add.\n{CALL}<|im_end|>\n<|im_start|>tool\n5<|im_end|>" in text
    assert (session.turns, session.unmatched) == (2, 0)
    check_accounts(session, policy)


async def test_a_changed_history_is_another_sequence_and_counted(session_server, http_client) -> None:
    policy = ScriptedPolicy("4", "5")
    session = session_server.begin(policy.sample)
    await ask(http_client, session, ASKED)
    more = {"role": "user", "content": "sure?"}
    await ask(http_client, session, [*ASKED, {"role": "assistant", "content": "6"}, more])
    await ask(http_client, session, [*ASKED, {"role": "assistant", "content": "4"}, more])
    assert len(session.sequences()) == 2
    assert (session.turns, session.unmatched) == (3, 1)
    check_accounts(session, policy)


async def test_a_foreign_key_is_401_and_a_finished_session_409(session_server, http_client) -> None:
    session, other = session_server.begin(ScriptedPolicy("4").sample), session_server.begin(ScriptedPolicy("4").sample)
    assert session.api_key != other.api_key
    session_server.end(session)
    for path, body in (
        ("/chat/completions", {"messages": ASKED}),
        ("/completions", {"prompt": "x"}),
        ("/messages", {"messages": ASKED, "max_tokens": 4}),
    ):
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer rl-guess"}, 401),
            ({"x-api-key": session.api_key}, 409),
            ({"Authorization": f"Bearer {session.api_key}"}, 409),
            ({"x-api-key": other.api_key}, 200),
        ):
            response = await http_client.post(session.base_url + path, json=body, headers=headers)
            assert response.status_code == status, (path, headers, response.text)
    refused = await http_client.post(f"{session.base_url}/messages", json={}, headers={"x-api-key": "rl-guess"})
    assert refused.json()["error"]["type"] == "authentication_error"
    assert (await http_client.get(f"{session.base_url}/models")).status_code == 401


async def test_the_end_of_a_session_ends_its_requests(session_server, http_client) -> None:
    policy = ScriptedPolicy("4")
    policy.hold = asyncio.Event()
    session = session_server.begin(policy.sample)
    request = asyncio.create_task(
        http_client.post(
            f"{session.base_url}/chat/completions", json={"messages": ASKED}, headers={"x-api-key": session.api_key}
        )
    )
    while not policy.prompts:  # bounded by the test's timeout
        await asyncio.sleep(0.01)
    session_server.end(session)
    response = await request
    assert response.status_code == 409
    assert "the rollout has ended" in response.json()["error"]["message"]
    assert session.sequences() == []


async def test_a_prompt_without_room_and_a_policy_that_is_gone(session_server, http_client) -> None:
    policy = ScriptedPolicy("4")
    session = session_server.begin(policy.sample)
    headers = {"x-api-key": session.api_key}
    url = f"{session.base_url}/chat/completions"
    long = await http_client.post(url, json={"messages": [{"role": "user", "content": "x" * 999}]}, headers=headers)
    assert (long.status_code, long.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert session.overflowed
    await ask(http_client, session, ASKED, max_tokens=9999)
    assert policy.settings[-1].max_tokens == 400 - len(policy.prompts[-1])
    policy.error = ConnectionError("gone")
    gone = await http_client.post(url, json={"messages": ASKED}, headers=headers)
    assert gone.status_code == 503
    assert "ConnectionError: gone" in gone.json()["error"]["message"]


async def test_completions_by_token_ids_are_recorded(session_server, http_client) -> None:
    policy = ScriptedPolicy("4", "5")
    session = session_server.begin(policy.sample)
    headers = {"x-api-key": session.api_key}
    body = {"prompt": TOKENIZER.encode("sort").tolist(), "return_token_ids": True, "max_tokens": 9}
    answer = (await http_client.post(f"{session.base_url}/completions", json=body, headers=headers)).json()
    body["prompt"] = [*body["prompt"], *answer["choices"][0]["token_ids"], 9]
    await http_client.post(f"{session.base_url}/completions", json=body, headers=headers)
    assert len(session.sequences()) == 1
    check_accounts(session, policy)


async def test_128_rollouts_at_once_keep_their_own(session_server, http_client) -> None:
    policies = [ScriptedPolicy(f"answer {index}\n{CALL}", f"more {index}") for index in range(128)]
    sessions = [session_server.begin(policy.sample) for policy in policies]

    async def talk(session: RolloutSession) -> None:
        (said,) = await ask(http_client, session, ASKED)
        await ask(
            http_client, session, [*ASKED, said, {"role": "tool", "tool_call_id": "1", "content": "error: failed"}]
        )

    await asyncio.gather(*map(talk, sessions))
    for index, (session, policy) in enumerate(zip(sessions, policies, strict=True)):
        (sequence,) = session.sequences()
        assert f"answer {index}\n" in TOKENIZER.verbatim(np.array(sequence.tokens))
        check_accounts(session, policy)


TOKENS = st.lists(st.integers(3, 511), min_size=1, max_size=12)
OUTPUTS = st.one_of(
    TOKENS,
    TOKENS.map(lambda tokens: [*tokens, EOS]),
    st.sampled_from([CALL, f"I add.\n{CALL}\n{CALL}", "<tool_call>{oops", "4", "<think>2 and 3</think>5"]).map(
        lambda text: [*TOKENIZER.encode(text).tolist(), EOS]
    ),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["go on", "go on", "go on", "again", "go back", "change", "shorten"]),
        st.sampled_from(["user", "tool"]),
        st.integers(1, 2),
        st.integers(1, 40),
    ),
    min_size=1,
    max_size=7,
)


@settings(deadline=None, max_examples=40)
@given(st.lists(OUTPUTS, min_size=1, max_size=5), STEPS)
def test_every_token_is_trained_once_whatever_a_program_does(outputs, steps) -> None:
    asyncio.run(converse(outputs, steps))


async def converse(outputs: list[list[int]], steps: list[tuple[str, str, int, int]]) -> None:
    """A program that goes on, asks again, goes back, changes and shortens what was said; answers are cut short."""
    policy = ScriptedPolicy()
    policy.outputs = itertools.cycle(outputs)
    server = SessionServer(chat_renderer(TOKENIZER, "bundled"), "bundled", max_length=2000)
    await server.start()
    try:
        session = server.begin(policy.sample)
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            history: list[dict] = list(ASKED)
            for step, role, n, max_tokens in steps:
                said = await ask(client, session, history, n=n, max_tokens=max_tokens)
                history = after(step, role, history, said[-1])
        check_accounts(session, policy)
    finally:
        await server.close()


def after(step: str, role: str, history: list[dict], said: dict) -> list[dict]:
    told = {"role": role, "content": "5", **({"tool_call_id": "1"} if role == "tool" else {})}
    match step:
        case "go on":
            return [*history, said, told]
        case "again":
            return history
        case "go back":
            return history[: max(1, len(history) - 2)]
        case "change":
            return [*history, {"role": "assistant", "content": "something else"}, told]
        case _:
            return [*history[-1:], said, told]


@pytest.mark.parametrize("arguments", ["{", "[" * 100_000, 5], ids=["cut off", "nested without end", "a number"])
def test_what_is_not_of_the_policy_stays_as_it_is(arguments: object) -> None:
    sent = SentMessages()
    sent.add({"role": "assistant", "content": "yes"}, "yes<|im_end|>")
    theirs = {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": arguments}}]}
    assert sent.as_written([theirs]) == [theirs]
