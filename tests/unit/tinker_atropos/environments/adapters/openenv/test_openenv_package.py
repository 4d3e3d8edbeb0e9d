"""The adapter against the real `openenv` package, in a Python of its own (see `.ci/run`)."""

import asyncio
import os
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("openenv_program.py")
SEED = 103


@pytest.fixture
async def start_packaged(process):
    """Starts one of the program's environments, and gives its URL."""
    python = os.environ.get("RL_OPENENV_PYTHON")
    if not python:
        pytest.skip(
            "needs RL_OPENENV_PYTHON: a Python with openenv 0.10.0 (python3 -m venv V && V/bin/pip install "
            "--no-deps openenv==0.10.0 && V/bin/pip install 'fastmcp>=3,<4' fastapi uvicorn websockets)"
        )
    servers = []

    async def start(name: str) -> str:
        server = await asyncio.create_subprocess_exec(python, PROGRAM, name, stdout=asyncio.subprocess.PIPE)
        servers.append(server)
        return f"http://127.0.0.1:{int(await asyncio.wait_for(server.stdout.readline(), 120))}"

    yield start
    for server in servers:
        server.kill()
        await server.wait()


async def test_episodes_of_a_typed_action(start_packaged, opened):
    answers = ("eight or so", '{"number": 50}', '```json\n{"number": 5}\n```', "3")
    async with opened(await start_packaged("guess"), *answers, settings={"maxSessions": 8}, system_prompt=None) as env:
        outcomes = await env.roll_out(SEED, 32, "train")
    assert [outcome.score for outcome in outcomes] == [0.875] * 32
    assert '"number":{"description":"From 0 to 9.","maximum":9,"minimum":0,"type":"integer"}' in env.prompts[0]
    assert "user\nGuess.<|im_end|>" in env.prompts[0]
    shown = env.prompts[-1]
    assert "The answer is neither a JSON object nor a value of number." in shown
    assert "number: Input should be less than or equal to 9. An action is a JSON object with number (integer)." in shown
    assert "user\nlower<|im_end|>" in shown


async def test_an_environment_that_raises_costs_the_rollout(start_packaged, opened):
    async with opened(await start_packaged("guess"), "0") as env:
        (failed,) = await env.roll_out(SEED, 1, "train")
    assert failed.kind == "raised"
    assert "the server answered EXECUTION_ERROR: zero is not a number" in failed.message


async def test_more_rollouts_than_it_has_sessions(start_packaged, opened):
    async with opened(await start_packaged("guess"), "3", settings={"maxSessions": 24}) as env:
        outcomes = await env.roll_out(SEED, 48, "train")
    assert [outcome.score for outcome in outcomes] == [0.75] * 48


async def test_episodes_of_tool_calls(start_packaged, opened):
    calls = ('{"tool_name": "add", "arguments": {"a": "x"}}', '{"tool_name": "add", "arguments": {"a": 1, "b": 2}}')
    async with opened(await start_packaged("tools"), *calls, system_prompt=None) as env:
        outcomes = await env.roll_out(SEED, 4, "train")
    assert [outcome.score for outcome in outcomes] == [1.0] * 4
    assert "- add: Add two numbers.\n  arguments: {" in env.prompts[0]
    assert 'user\n{"metadata":{"task":"add 1 and 2"}}<|im_end|>' in env.prompts[0]
    assert "The tool failed: 2 validation errors for call[add]" in env.prompts[-1]
