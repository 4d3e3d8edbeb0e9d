"""Anthropic's requests as OpenAI's, and what cannot be translated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.chat.anthropic_requests import chat_request
from tinker_atropos.chat.request_handling import RefusedRequestError

USER = {"role": "user", "content": "x"}
WHOLE = {"max_tokens": 9, "messages": [USER]}


def translated(**fields) -> dict:
    return chat_request({**WHOLE, **fields})


def test_a_conversation_with_tools() -> None:
    thought = {"type": "thinking", "thinking": "hm"}
    use = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "no"}], "is_error": True}
    answer = translated(
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        messages=[
            USER,
            {
                "role": "assistant",
                "content": [thought, {"type": "text", "text": "I"}, use],
            },
            {"role": "user", "content": [result, {"type": "text", "text": "again"}]},
        ],
    )
    call = {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    assert answer["messages"] == [
        {"role": "system", "content": "Be brief."},
        USER,
        {"role": "assistant", "content": "<think>hm</think>\nI", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t1", "content": "Error: no"},
        {"role": "user", "content": "again"},
    ]


def test_fields_of_its_own() -> None:
    tool = {"name": "add", "description": "Adds.", "input_schema": {"type": "object"}}
    answer = translated(
        tools=[tool],
        tool_choice={"type": "tool", "name": "add", "disable_parallel_tool_use": True},
        stop_sequences=["END"],
        temperature=0.5,
        thinking={"type": "enabled", "budget_tokens": 1024},
        service_tier="auto",
        output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
        mcp_servers=[],
    )
    function = {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}
    assert answer == {
        "max_tokens": 9,
        "messages": [USER],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "parallel_tool_calls": False,
        "stop": ["END"],
        "temperature": 0.5,
        "thinking": {"type": "enabled", "budget_tokens": 1024},  # the chat request warns that it has no effect
        "response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": {"type": "object"}}},
    }
    assert translated(tool_choice={"type": "any"})["tool_choice"] == "required"


IMAGE = {"type": "image", "source": {}}
REFUSED = {
    "no max_tokens": ({"max_tokens": None}, "max_tokens is missing"),
    "no messages": ({"messages": []}, "messages is empty"),
    "an image": ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages.0.content.0 has the type 'image'"),
    "a role": ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role is 'tool'"),
    "a prefill": ({"messages": [USER, {"role": "assistant", "content": "{"}]}, "messages.1 has the role assistant"),
    "a tool of Anthropic's": ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools.0.type is"),
    "a tool without a schema": ({"tools": [{"name": "w"}]}, "tools.0 is not a tool"),
    "a choice": ({"tool_choice": "auto"}, "tool_choice must be an object"),
    "servers": ({"mcp_servers": [{"url": "x"}]}, "mcp_servers is not supported"),
    "several answers": ({"n": 2}, "n is 2"),
    "stops": ({"stop_sequences": "END"}, "stop_sequences must be a list of strings"),
}


@pytest.mark.parametrize(("fields", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_names_the_field(fields, sentence) -> None:
    with pytest.raises(RefusedRequestError) as refused:
        translated(**fields)
    assert str(refused.value).startswith(sentence)
    assert str(refused.value).startswith(refused.value.field)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["text", "user", "tool_use", "assistant", "any"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "name", "input", "id", "text"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["messages", "system", "tools", "tool_choice", "stop_sequences", "output_config", "max_tokens"]
)


@given(st.dictionaries(FIELDS, JSON))
def test_anything_else_is_refused_and_nothing_else_raised(fields) -> None:
    try:
        answer = chat_request({**WHOLE, **fields})
    except RefusedRequestError:
        return
    assert answer["messages"]
