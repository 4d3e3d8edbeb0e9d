"""What a client puts together of a stream is the finished answer."""

import json
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.chat.anthropic_answers import error_answer, message_answer
from tinker_atropos.chat.event_streams import chat_events, messages_events

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


def data_of(events: list[bytes]) -> list[dict]:
    lines = [line for event in events for line in event.decode().split("\n") if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


@given(answers())
def test_chunks_add_up_to_the_answer(answer) -> None:
    events = list(chat_events(answer, include_usage=True))
    assert events[-1] == b"data: [DONE]\n\n"
    *chunks, last = data_of(events)
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
    started, *events, delta, stopped = data_of(list(messages_events(message)))
    assert (started["type"], stopped["type"]) == ("message_start", "message_stop")
    assert delta["delta"]["stop_reason"] == message["stop_reason"]
    assert len(events) == 3 * len(message["content"])


def test_errors_have_anthropics_types() -> None:
    kinds = {status: error_answer(status, "x")["error"]["type"] for status in (400, 401, 409, 413, 500, 503)}
    assert kinds == {
        400: "invalid_request_error",
        401: "authentication_error",
        409: "invalid_request_error",
        413: "request_too_large",
        500: "api_error",
        503: "overloaded_error",
    }
