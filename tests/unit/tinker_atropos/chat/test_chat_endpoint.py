"""The dialects of the endpoint over real HTTP: what programs ask, and what they get."""

import json
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.chat.anthropic_requests import error_answer, message_answer
from tinker_atropos.chat.chat_endpoint import chat_events, messages_events
from tinker_atropos.chat.request_handling import RefusedRequestError

CHAT = {"messages": [{"role": "user", "content": "2 + 3"}]}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
CALLED = {"name": "add", "arguments": '{"a": 2, "b": 3}'}


def answers_with(inference, *texts: str) -> None:
    inference.sampler.outputs = [[*inference.tokenizer.encode(text).tolist(), 2] for text in texts]


async def chat(inference, **fields) -> dict:
    response = await inference.client.post("/v1/chat/completions", json={**CHAT, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def prompt_of(inference) -> str:
    return inference.tokenizer.verbatim(np.array(inference.sampler.asked[-1][0]))


async def test_calls_are_parsed_and_numbered_apart(inference) -> None:
    answers_with(inference, f"I add.\n{CALL}\n{CALL}")
    answer = await chat(inference, tools=[ADD])
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "I add."
    calls = choice["message"]["tool_calls"]
    assert [call["function"] for call in calls] == [CALLED, CALLED]
    assert len({call["id"] for call in calls}) == 2
    assert {call["type"] for call in calls} == {"function"}


async def test_without_tools_markup_is_text(inference) -> None:
    answers_with(inference, CALL)
    for fields in ({}, {"tools": [ADD], "tool_choice": "none"}):
        (choice,) = (await chat(inference, **fields))["choices"]
        assert choice["message"] == {"role": "assistant", "content": CALL}
        assert choice["finish_reason"] == "stop"
        assert "add" not in prompt_of(inference)


async def test_a_malformed_call_is_text_with_a_reason(inference) -> None:
    answers_with(inference, "<tool_call>\n{oops}\n</tool_call>")
    (choice,) = (await chat(inference, tools=[ADD]))["choices"]
    assert choice["message"]["content"] == "<tool_call>\n{oops}\n</tool_call>"
    (reason,) = choice["message"]["tool_call_errors"]
    assert reason.startswith("the call is not JSON: ")
    assert choice["finish_reason"] == "stop"


async def test_only_one_call_if_they_must_not_be_parallel(inference) -> None:
    answers_with(inference, f"{CALL}\n{CALL}")
    (choice,) = (await chat(inference, tools=[ADD], parallel_tool_calls=False))["choices"]
    assert [call["function"] for call in choice["message"]["tool_calls"]] == [CALLED]


@pytest.mark.parametrize(
    ("tool_choice", "opening", "rest"),
    [
        ("required", '<tool_call>\n{"name": "', 'add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'),
        (
            {"type": "function", "function": {"name": "add"}},
            '<tool_call>\n{"name": "add", "arguments": ',
            '{"a": 2, "b": 3}}\n</tool_call>',
        ),
    ],
    ids=["any", "a named one"],
)
async def test_a_required_call_is_begun_in_the_prompt(inference, tool_choice, opening, rest) -> None:
    answers_with(inference, rest)
    answer = await chat(inference, tools=[ADD], tool_choice=tool_choice, return_token_ids=True)
    (choice,) = answer["choices"]
    assert [call["function"] for call in choice["message"]["tool_calls"]] == [CALLED]
    assert prompt_of(inference).endswith(f"<|im_start|>assistant\n{opening}")
    assert choice["token_ids"] == inference.sampler.outputs[0]  # what was sampled, not what was written for the model


async def test_token_ids_in_vllms_places(inference) -> None:
    answer = await chat(inference, return_token_ids=True, n=2)
    assert answer["prompt_token_ids"] == inference.sampler.asked[0][0]
    assert [choice["token_ids"] for choice in answer["choices"]] == inference.sampler.outputs * 2
    body = {"prompt": "sort", "return_token_ids": True}
    completion = (await inference.client.post("/v1/completions", json=body)).json()
    assert completion["prompt_token_ids"] == inference.tokenizer.encode("sort").tolist()
    assert "prompt_token_ids" not in await chat(inference)


async def test_unknown_fields_are_ignored_with_a_warning(inference, caplog) -> None:
    fields = {"reasoning_effort": "low", "response_format": {"type": "json_object"}, "user": "me"}
    for _ in range(2):
        response = await inference.client.post("/v1/chat/completions", json={**CHAT, **fields})
        assert response.status_code == 200
        assert response.headers["x-rl-ignored-fields"] == "reasoning_effort, response_format"
    warnings = [record.getMessage() for record in caplog.records if "no effect" in record.getMessage()]
    assert warnings == [
        "requests have the field 'reasoning_effort', which has no effect here",
        "requests have the field 'response_format', which has no effect here",
    ]
    plain = await inference.client.post("/v1/chat/completions", json=CHAT)
    assert "x-rl-ignored-fields" not in plain.headers


def data_of(text: str) -> list:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]


async def test_a_stream_is_the_finished_answer_in_pieces(inference) -> None:
    answers_with(inference, f"I add.\n{CALL}")
    body = {**CHAT, "tools": [ADD], "stream": True, "stream_options": {"include_usage": True}}
    response = await inference.client.post("/v1/chat/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("data: [DONE]\n\n")
    *chunks, usage = data_of(response.text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content") or "" for delta in deltas) == "I add."
    (call,) = (call for delta in deltas for call in delta.get("tool_calls", []))
    assert call["function"] == CALLED
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert usage["usage"]["completion_tokens"] == len(inference.sampler.outputs[0])
    response = await inference.client.post("/v1/completions", json={"prompt": "sort", "stream": True})
    assert data_of(response.text)[0]["choices"][0]["text"] == f"I add.\n{CALL}"


async def test_anthropics_messages_are_the_same_chat(inference) -> None:
    answers_with(inference, f"I add.\n{CALL}")
    tool = {"name": "add", "input_schema": ADD["function"]["parameters"]}
    body = {"max_tokens": 9, "system": "Be brief.", "tools": [tool], "tool_choice": {"type": "auto"}, "model": "m"}
    answer = (await inference.client.post("/v1/messages", json={**CHAT, **body})).json()
    assert answer["content"][0] == {"type": "text", "text": "I add."}
    assert {**answer["content"][1], "id": ""} == {
        "type": "tool_use",
        "id": "",
        "name": "add",
        "input": {"a": 2, "b": 3},
    }
    assert answer["stop_reason"] == "tool_use"
    asked = inference.sampler.asked[-1]
    assert asked[2].max_tokens == 9
    assert "<|im_start|>system\nBe brief." in prompt_of(inference)
    counted = await inference.client.post("/v1/messages/count_tokens", json={**CHAT, **body})
    assert counted.json() == {"input_tokens": len(asked[0])}
    stream = await inference.client.post("/v1/messages", json={**CHAT, **body, "stream": True})
    assert [event["type"] for event in data_of(stream.text)][-1] == "message_stop"


async def test_anthropics_refusals_have_its_shape(inference) -> None:
    refused = await inference.client.post("/v1/messages", json=CHAT)
    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert refused.json()["error"]["message"].startswith("max_tokens is missing")
    refused = await inference.client.post("/v1/messages", json={**CHAT, "max_tokens": 8, "temperature": -1})
    assert refused.json()["error"]["message"].startswith("temperature: ")
    refused = await inference.client.post("/v1/messages", content=b"[")
    assert refused.json()["error"]["message"].startswith("the body is not JSON")


CALLS = st.builds(
    lambda name, value: {
        "id": f"call_{name}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps({"a": value})},
    },
    st.text("abc", min_size=1, max_size=3),
    st.integers() | st.text(max_size=5),
)


@st.composite
def answers(draw: st.DrawFn) -> dict:
    choices = []
    for index in range(draw(st.integers(1, 3))):
        content, calls = draw(st.text(max_size=9)), draw(st.lists(CALLS, max_size=2))
        message = {"role": "assistant", "content": content or (None if calls else "")}
        if calls:
            message["tool_calls"] = calls
        if draw(st.booleans()):
            message["tool_call_errors"] = ["the call is not JSON"]
        reason = draw(st.sampled_from(["length", "tool_calls" if calls else "stop"]))
        ended = {"finish_reason": reason, "stop_reason": draw(st.sampled_from([None, "END", 7]))}
        choices.append({"index": index, "message": message, "logprobs": None, "token_ids": [index], **ended})
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return {**head, "choices": choices, "usage": usage, "prompt_token_ids": [1, 2, 3]}


def data_of_events(events: list[bytes]) -> list[dict]:
    lines = [line for event in events for line in event.decode().split("\n") if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


@given(answers())
def test_chunks_add_up_to_the_answer(answer) -> None:
    events = list(chat_events(answer, include_usage=True))
    assert events[-1] == b"data: [DONE]\n\n"
    *chunks, last = data_of_events(events)
    assert (last["choices"], last["usage"]) == ([], answer["usage"])
    assert chunks[0]["prompt_token_ids"] == [1, 2, 3]
    texts, calls, ends = defaultdict(str), defaultdict(list), {}
    for chunk in chunks:
        (choice,) = chunk["choices"]
        index, delta = choice["index"], choice["delta"]
        texts[index] += delta.get("content") or ""
        calls[index] += [{name: each[name] for name in each if name != "index"} for each in delta.get("tool_calls", [])]
        if choice["finish_reason"]:
            ends[index] = (choice["finish_reason"], choice["stop_reason"])
    for index, choice in enumerate(answer["choices"]):
        assert texts[index] == (choice["message"]["content"] or "")
        assert calls[index] == choice["message"].get("tool_calls", [])
        assert ends[index] == (choice["finish_reason"], choice["stop_reason"])


@given(answers())
def test_a_message_and_its_events(answer) -> None:
    message = message_answer(answer, ["END"])
    first = answer["choices"][0]
    text = "".join(block["text"] for block in message["content"] if block["type"] == "text")
    assert text == (first["message"]["content"] or "")
    inputs = [block["input"] for block in message["content"] if block["type"] == "tool_use"]
    assert inputs == [json.loads(call["function"]["arguments"]) for call in first["message"].get("tool_calls", [])]
    expected = {"length": "max_tokens", "tool_calls": "tool_use"}.get(first["finish_reason"])
    assert message["stop_reason"] == (expected or ("stop_sequence" if first["stop_reason"] == "END" else "end_turn"))
    started, *events, delta, stopped = data_of_events(list(messages_events(message)))
    assert (started["type"], stopped["type"]) == ("message_start", "message_stop")
    assert delta["delta"]["stop_reason"] == message["stop_reason"]
    assert len(events) == 3 * len(message["content"])


def test_errors_have_anthropics_types() -> None:
    refusals = [RefusedRequestError("x", status=status) for status in (400, 401, 409, 413, 500, 503)]
    kinds = {refusal.status: error_answer(refusal)["error"]["type"] for refusal in refusals}
    assert kinds == {
        400: "invalid_request_error",
        401: "authentication_error",
        409: "invalid_request_error",
        413: "request_too_large",
        500: "api_error",
        503: "overloaded_error",
    }
