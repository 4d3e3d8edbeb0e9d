"""Other people's clients at an endpoint: `python clients_program.py BASE_URL API_KEY`, by a Python that has them.

Each asks the same question with the same tool, and prints what it understood as a line of JSON.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no list of prices from the network

import anthropic
import litellm
import openai
from langchain_openai import ChatOpenAI

BASE_URL, API_KEY = sys.argv[1:]
QUESTION: Any = [{"role": "user", "content": "2 + 3"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
FUNCTION = {"name": "add", "description": "Adds.", "parameters": SCHEMA}
TOOL: Any = {"type": "function", "function": FUNCTION}
ANTHROPIC_TOOL: Any = {"name": "add", "description": "Adds.", "input_schema": SCHEMA}
Understood = dict[str, Any]

openai_client = openai.OpenAI(base_url=BASE_URL, api_key=API_KEY)
anthropic_client = anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key=API_KEY)


def understood(text: str | None, calls: list[tuple[str, dict[str, Any]]], finish: str) -> Understood:
    return {"text": text or "", "calls": calls, "finish": finish}


def of_openai(choice: Any) -> Understood:
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or ()]
    return understood(choice.message.content, calls, choice.finish_reason)


def openai_chat() -> Understood:
    answer = openai_client.chat.completions.create(model="m", messages=QUESTION, tools=[TOOL])
    return of_openai(answer.choices[0])


def openai_stream() -> Understood:
    with openai_client.chat.completions.stream(model="m", messages=QUESTION, tools=[TOOL]) as stream:
        return of_openai(stream.get_final_completion().choices[0])


def openai_completions() -> Understood:
    (choice,) = openai_client.completions.create(model="m", prompt="2 + 3", max_tokens=99).choices
    return understood(choice.text, [], choice.finish_reason)


def of_anthropic(message: Any) -> Understood:
    text = "".join(block.text for block in message.content if block.type == "text")
    calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
    return understood(text, calls, message.stop_reason)


def anthropic_messages() -> Understood:
    asked = {"model": "m", "max_tokens": 99, "messages": QUESTION, "tools": [ANTHROPIC_TOOL]}
    return of_anthropic(anthropic_client.messages.create(**asked))


def anthropic_stream() -> Understood:
    asked = {"model": "m", "max_tokens": 99, "messages": QUESTION, "tools": [ANTHROPIC_TOOL]}
    with anthropic_client.messages.stream(**asked) as stream:
        return of_anthropic(stream.get_final_message())


def langchain() -> Understood:
    answer = ChatOpenAI(model="m", base_url=BASE_URL, api_key=API_KEY).bind_tools([TOOL]).invoke("2 + 3")
    calls = [(call["name"], call["args"]) for call in answer.tool_calls]
    return understood(answer.content, calls, answer.response_metadata["finish_reason"])


def litellm_completion() -> Understood:
    answer = litellm.completion(
        model="openai/m", api_base=BASE_URL, api_key=API_KEY, messages=QUESTION, tools=[TOOL], drop_params=True
    )
    return of_openai(answer.choices[0])


CLIENTS: tuple[Callable[[], Understood], ...] = (
    openai_chat, openai_stream, openai_completions, anthropic_messages, anthropic_stream, langchain, litellm_completion
)  # fmt: skip

for client in CLIENTS:
    print(json.dumps({"client": client.__name__, **client()}), flush=True)
