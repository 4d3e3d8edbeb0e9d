"""The endpoint as the official clients of OpenAI and Anthropic, LangChain and LiteLLM ask it."""

import asyncio
import json
import os
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("clients_program.py")
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'


async def asked_by(python: str, url: str) -> dict[str, dict]:
    env_vars = {**os.environ, "NO_PROXY": "127.0.0.1"}
    program = await asyncio.create_subprocess_exec(
        python, PROGRAM, url, "rl-key", stdout=asyncio.subprocess.PIPE, env=env_vars
    )
    try:
        printed, _ = await asyncio.wait_for(program.communicate(), 180)
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    assert program.returncode == 0
    return {each.pop("client"): each for each in map(json.loads, printed.splitlines())}


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/chat")
async def test_all_understand_text_and_calls(process, inference) -> None:
    python = os.environ.get("RL_CLIENTS_PYTHON")
    if not python:
        pytest.skip("needs RL_CLIENTS_PYTHON: a Python with openai, anthropic, langchain-openai and litellm")
    inference.sampler.outputs = [[*inference.tokenizer.encode(f"I add.\n{CALL}\n{CALL}").tolist(), 2]]
    answers = await asked_by(python, f"{str(inference.client.base_url).rstrip('/')}/v1")
    called = {"text": "I add.", "calls": [["add", {"a": 2, "b": 3}]] * 2}
    assert answers == {
        "openai_chat": {**called, "finish": "tool_calls"},
        "openai_stream": {**called, "finish": "tool_calls"},
        "openai_completions": {"text": f"I add.\n{CALL}\n{CALL}", "calls": [], "finish": "stop"},
        "anthropic_messages": {**called, "finish": "tool_use"},
        "anthropic_stream": {**called, "finish": "tool_use"},
        "langchain": {**called, "finish": "tool_calls"},
        "litellm_completion": {**called, "finish": "tool_calls"},
    }
