"""What agents and programs ask with tools, and what a provider over HTTP gets and answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tinker_atropos.environments.trial.conftest import set_up
from tests.unit.tinker_atropos.environments.trial.tool_program import TOOL
from tests.unit.tinker_atropos.environments.trial.tool_provider import ARGUMENTS, NO_TOOLS, ToolProvider

from tinker_atropos.errors import CredentialsError

PROGRAM = str(Path(__file__).with_name("tool_program.py"))


@pytest.fixture
def provider() -> Iterator[ToolProvider]:
    with ToolProvider() as provider:
        yield provider


@pytest.fixture
async def try_item(provider):
    """Try one item of an environment with a model."""
    environments = []

    async def step(name, model, seconds=5.0, **fields):
        trying, env = await set_up(provider, name, model, seconds=seconds, group_size=1, max_token_length=1024)
        environments.append(env)
        env.fields = fields
        return await trying.item(1), env

    yield step
    for env in environments:
        await env.close()


def sent_back(provider: ToolProvider) -> list[dict[str, Any]]:
    """The last request's messages after the question."""
    messages: list[dict[str, Any]] = provider.requests[-1]["messages"]
    return messages[1:]


@pytest.mark.parametrize(("model", "calls"), [("calls", 1), ("calls twice", 2)])
async def test_a_program_gets_a_providers_calls_and_sends_their_results(provider, try_item, model, calls):
    step, env = await try_item(PROGRAM, model)
    assert (list(step.scores), step.error) == ([1.0], None)
    assert [request["tools"] for request in provider.requests] == [[TOOL]] * 2
    assert provider.requests[0]["messages"] == [{"role": "user", "content": "go <|im_end|>"}]
    assert [choice.finish_reason for choice in env.answers] == ["tool_calls", "stop"]
    asked, *results = sent_back(provider)
    assert [call["function"] for call in asked["tool_calls"]] == [{"name": "repeat", "arguments": ARGUMENTS}] * calls
    assert [each["tool_call_id"] for each in results] == [call["id"] for call in asked["tool_calls"]]
    assert {(each["role"], each["content"]) for each in results} == {("tool", "40 + 2 é\n")}
    assert step.to_wire()["agent"] == {"turns": 2, "tool_calls": calls}


async def test_a_programs_cut_off_call_is_text_as_in_training(provider: ToolProvider, try_item) -> None:
    step, env = await try_item(PROGRAM, "cut off")
    assert (list(step.scores), len(provider.requests)) == ([0.0], 1)
    [choice] = env.answers
    assert choice.message.tool_calls is None
    assert "the call is not JSON" in choice.message.tool_call_errors[0]


async def test_a_program_may_require_a_call_and_send_fields_that_are_not_openais(provider, try_item):
    named = {"type": "function", "function": {"name": "repeat"}}
    await try_item(PROGRAM, "calls", tool_choice=named, parallel_tool_calls=False, extra_body={"top_k": 7})
    first = provider.requests[0]
    assert set(provider.paths) == {"/v1/chat/completions"}
    assert (first["tool_choice"], first["parallel_tool_calls"], first["top_k"]) == (named, False, 7)
    assert [each["function"]["name"] for each in sent_back(provider)[0]["tool_calls"]] == ["repeat"]


AGENTS = {
    "calls twice": {"turns": 2, "tool_calls": 2, "tool_errors": 0},
    "cut off": {"turns": 2, "tool_calls": 1, "tool_errors": 1},
    "nested": {"turns": 2, "tool_calls": 1, "tool_errors": 1},
    "no ids": {"turns": 2, "tool_calls": 1, "tool_errors": 0},
    "ignores tools": {"turns": 1, "tool_calls": 0, "tool_errors": 0},
}


@pytest.mark.parametrize(("model", "agent"), AGENTS.items(), ids=AGENTS)
async def test_an_agent_calls_its_tools_natively(provider, try_item, model, agent):
    step, _ = await try_item("calculator_agent", model)
    assert step.error is None
    assert step.to_wire()["agent"] == agent
    assert {request["tools"][0]["function"]["name"] for request in provider.requests} == {"calculator"}
    if agent["tool_calls"]:
        asked, *results = sent_back(provider)
        ids = [each["tool_call_id"] for each in results]
        assert ids == [call["id"] for call in asked["tool_calls"]]
        assert all(ids)
        assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in asked["tool_calls"])


@pytest.mark.parametrize("name", [PROGRAM, "calculator_agent"], ids=["program", "agent"])
async def test_a_provider_that_refuses_tools_is_reported(provider: ToolProvider, try_item, name: str) -> None:
    step, _ = await try_item(name, "no tools")
    assert step.error.startswith(f"the provider answered 404: {NO_TOOLS} (the request had tools: ")
    assert len(provider.requests) == 1


@pytest.mark.parametrize("name", [PROGRAM, "calculator_agent"], ids=["program", "agent"])
async def test_a_key_that_is_refused_to_an_agent_ends_the_trial(try_item, name: str) -> None:
    with pytest.raises(CredentialsError, match="the provider answered 401"):
        await try_item(name, "401")


async def test_a_provider_that_hangs_is_not_asked_again(provider: ToolProvider, try_item) -> None:
    step, _ = await try_item("calculator_agent", "hangs", seconds=0.5)
    assert step.error == "the provider did not answer in time"
    assert len(provider.requests) == 1


async def test_an_environments_own_rendering_with_tools_is_asked_with_them(provider, try_item):
    """Templates want the arguments of calls as objects, and text is what such an environment reads."""
    _, env = await try_item("sort_digits", "calls")
    call = {"id": "1", "type": "function", "function": {"name": "repeat", "arguments": {"expression": "é"}}}
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}
    prompt = env.tokenizer.apply_chat_template(
        [asked, {"role": "user", "content": "go"}], tools=[TOOL], add_generation_prompt=True, tokenize=False
    )
    answer = await env.server.completion(prompt=prompt)
    assert provider.requests[-1]["tools"] == [TOOL]
    [sent] = provider.requests[-1]["messages"][0]["tool_calls"]
    assert sent["function"]["arguments"] == '{"expression": "é"}'
    assert answer.choices[0].text == f'<tool_call>\n{{"name": "repeat", "arguments": {ARGUMENTS}}}\n</tool_call>'


async def test_no_redirect_is_followed_with_the_key(provider: ToolProvider, try_item) -> None:
    step, _ = await try_item("calculator_agent", "307")
    assert step.error.startswith("the provider answered 307")
    assert provider.paths == ["/v1/chat/completions"]
