"""The loop with a scripted server and scripted tools: what an agent is told, and when it stops."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion

from tinker_atropos.chat.sampling import ContextOverflowError
from tinker_atropos.environments.agents import toolbox
from tinker_atropos.environments.agents.agent_loop import SHOWN_ARGUMENTS, AgentLoop, ToolSchemas
from tinker_atropos.environments.agents.tool import Tool
from tinker_atropos.environments.agents.toolbox import MAX_RESULT_CHARACTERS, Toolbox
from tinker_atropos.sandboxes.sandbox import SandboxLostError

ASKED = {"role": "user", "content": "2 + 3"}
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a"]}


def call(name: str, arguments: Any, number: int = 0) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": f"call{number}", "type": "function", "function": {"name": name, "arguments": text}}


def answer(content: str | None, *calls: dict[str, Any], **more: Any) -> ChatCompletion:
    message = {"role": "assistant", "content": content, "tool_calls": list(calls) or None, **more}
    return ChatCompletion.model_validate(
        {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        }
    )


class ScriptedServer:
    """Gives `answers` one after the other; those that are exceptions are raised."""

    def __init__(self, *answers: ChatCompletion | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []

    async def chat_completion(self, **request: Any) -> ChatCompletion:
        self.requests.append(request)
        said = self.answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


@pytest.fixture(autouse=True)
def box_without_sandbox():
    box = Toolbox(lambda: pytest.fail("no sandbox is needed"), seconds=60, threads=4)
    toolbox.install(box)
    yield box
    box.close()
    toolbox.install(None)


def agent(server: ScriptedServer, *tools: Tool, **options: Any) -> AgentLoop:
    schemas = ToolSchemas({tool.name: tool for tool in tools})
    return AgentLoop(server, schemas, set(schemas.tools), **options)


def add(a: int, b: int = 0) -> int:
    return a + b


ADD = Tool("add", "Add.", NUMBERS, add)


async def test_a_conversation() -> None:
    server = ScriptedServer(answer("I add.", call("add", {"a": 2, "b": 3})), answer("5", reasoning_content="easy"))
    result = await agent(server, ADD, temperature=0.5, max_tokens=9, extra_body={"x": 1}).run([ASKED])
    assert [each["role"] for each in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert result.messages[2] == {"role": "tool", "tool_call_id": "call0", "name": "add", "content": "5"}
    assert (result.turns_used, result.finished_naturally, result.stopped_by) == (2, True, "finished")
    assert (result.last_answer, result.called_tools, result.tool_errors) == ("5", ["add"], [])
    assert result.reasoning_per_turn == [None, "easy"]
    request = {name: each for name, each in server.requests[0].items() if name != "messages"}
    assert request == {"n": 1, "temperature": 0.5, "max_tokens": 9, "extra_body": {"x": 1}, "tools": [ADD.schema]}


async def test_calls_of_one_answer_run_at_the_same_time() -> None:
    """Each waits for the other."""
    both = asyncio.Barrier(2)

    async def meet(a: int) -> str:
        await both.wait()
        return f"met {a}"

    server = ScriptedServer(answer(None, call("meet", {"a": 1}), call("meet", {"a": 2}, 1)), answer("done"))
    result = await asyncio.wait_for(agent(server, Tool("meet", "", NUMBERS, meet)).run([ASKED]), 60)
    assert [(each["tool_call_id"], each["content"]) for each in result.messages[2:4]] == [
        ("call0", "met 1"),
        ("call1", "met 2"),
    ]


def broken(a: int) -> None:
    raise KeyError(a)


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (call("sub", {"a": 1}), "Error: there is no tool 'sub' (there are: add, broken)"),
        (call("add", "{"), "Error: add: the arguments are not JSON: "),
        (call("add", "[" * 100_000), "Error: add: the arguments are not JSON: "),
        (call("add", "[1]"), "Error: add: the arguments are not an object"),
        (call("add", {"b": 1}), "Error: add: a is missing (its arguments: a, b)"),
        (call("add", {"a": 1, "c": 1}), "Error: add: there is no c (its arguments: a, b)"),
        (call("add", {"a": "1"}), "Error: add: a is '1'; it must be of the type integer"),
        (call("add", {"a": True}), "Error: add: a is True; it must be of the type integer"),
        (call("broken", {"a": 1}), "Error: broken failed: KeyError: 1"),
    ],
)
async def test_a_bad_call_is_an_observation(bad: dict[str, Any], told: str) -> None:
    server = ScriptedServer(answer(None, bad, call("add", {"a": 1}, 1)), answer("done"))
    result = await agent(server, ADD, Tool("broken", "", NUMBERS, broken)).run([ASKED])
    assert result.messages[2]["content"].startswith(told)
    assert result.messages[3]["content"] == "1"
    (error,) = result.tool_errors
    assert (error.turn, error.tool_name) == (1, bad["function"]["name"])
    assert bad["function"]["arguments"][:SHOWN_ARGUMENTS] == error.arguments
    assert error.tool_result == result.messages[2]["content"]
    assert result.finished_naturally


async def test_what_could_not_be_read_is_told() -> None:
    server = ScriptedServer(answer("<tool_call>{", tool_call_errors=["it has no end"]), answer("done"))
    result = await agent(server, ADD).run([ASKED])
    assert result.messages[2] == {"role": "user", "content": "Error: a call could not be read: it has no end"}
    assert result.tool_errors[0].error == "it has no end"
    assert result.turns_used == 2


async def test_limits() -> None:
    forever = [answer(None, call("add", {"a": 1}))] * 3
    result = await agent(ScriptedServer(*forever), ADD, max_turns=2).run([ASKED])
    assert (result.turns_used, result.finished_naturally, result.stopped_by) == (2, False, "turns")
    result = await agent(ScriptedServer(forever[0], ContextOverflowError("full")), ADD).run([ASKED])
    assert (result.turns_used, result.stopped_by) == (1, "tokens")


def bad_request(code: str) -> openai.BadRequestError:
    response = httpx.Response(400, request=httpx.Request("POST", "http://x"))
    return openai.BadRequestError("no", response=response, body={"code": code})


async def test_a_provider_whose_context_is_full_ends_the_conversation() -> None:
    result = await agent(ScriptedServer(bad_request("context_length_exceeded"))).run([ASKED])
    assert (result.turns_used, result.stopped_by, result.last_answer) == (0, "tokens", "")
    with pytest.raises(openai.BadRequestError):
        await agent(ScriptedServer(bad_request("model_not_found"))).run([ASKED])


async def test_a_lost_sandbox_ends_the_rollout() -> None:
    def lost(sandbox: Any) -> None:
        raise SandboxLostError("gone")

    box = Toolbox(lambda: SimpleNamespace(lease=lambda _is_wanted: None, close=lambda: None), seconds=60, threads=1)
    toolbox.install(box)
    tool = Tool("lost", "", {"type": "object", "properties": {}}, lost, in_sandbox=True)
    with pytest.raises(ExceptionGroup) as raised:
        await agent(ScriptedServer(answer(None, call("lost", {}))), tool).run([ASKED])
    assert raised.group_contains(SandboxLostError)
    box.close()


async def test_a_hung_tool_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolbox, "GRACE_SECONDS", 0.0)
    box = Toolbox(lambda: pytest.fail("no sandbox is needed"), seconds=0.05, threads=1)
    toolbox.install(box)

    async def hang(a: int) -> None:
        await asyncio.Event().wait()

    result = await agent(
        ScriptedServer(answer(None, call("hang", {"a": 1})), answer("done")), Tool("hang", "", NUMBERS, hang)
    ).run([ASKED])
    assert result.messages[2]["content"] == "Error: hang took longer than 0.05 s"
    box.close()


async def test_long_results_are_cut() -> None:
    tool = Tool("much", "", NUMBERS, lambda a: "x" * (MAX_RESULT_CHARACTERS + a))
    result = await agent(ScriptedServer(answer(None, call("much", {"a": 7})), answer("done")), tool).run([ASKED])
    assert result.messages[2]["content"] == "x" * MAX_RESULT_CHARACTERS + "\n(7 characters are left out)"


async def test_reasoning_has_three_names() -> None:
    for more in ({"reasoning_content": "r"}, {"reasoning": "r"}, {"reasoning_details": [{"text": "r"}]}):
        result = await agent(ScriptedServer(answer("x", **more))).run([ASKED])
        assert result.reasoning_per_turn == ["r"]
        assert result.messages[-1]["reasoning_content"] == "r"
