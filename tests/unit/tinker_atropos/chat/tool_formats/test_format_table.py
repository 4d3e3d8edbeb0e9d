"""Every format on what its models write, on what they should not write, and there and back."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.chat.tool_formats.format_table import TOOL_FORMATS, tool_format_name
from tinker_atropos.chat.tool_formats.tool_format import ParsedAnswer, ToolCall

DATA = Path(__file__).parents[4] / "data" / "tool_calls.yaml"
RECORDED = yaml.safe_load(DATA.read_text(encoding="utf-8"))


def tool(name: str, **types: str) -> dict:
    properties = {key: {"type": kind} for key, kind in types.items()}
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


TOOLS = [tool("get_weather", city="string", days="integer"), tool("now")]


def test_every_format_has_recordings() -> None:
    assert RECORDED.keys() == TOOL_FORMATS.keys()
    assert len(TOOL_FORMATS) == 11


@pytest.mark.parametrize(
    ("name", "recorded"), [(name, each) for name, recordings in RECORDED.items() for each in recordings]
)
def test_what_models_write_is_understood(name, recorded) -> None:
    parsed = TOOL_FORMATS[name].parse(recorded["text"], TOOLS)
    assert parsed.errors == ()
    assert [(call.name, json.loads(call.arguments)) for call in parsed.calls] == [
        (call["name"], call["arguments"]) for call in recorded["calls"]
    ]
    assert parsed.content == recorded.get("content", "")


NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_-]{0,20}", fullmatch=True)
TEXTS = st.text(max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
TAGGED = {"qwen3_coder", "glm45", "glm47"}
"""Where arguments stand between tags: their values' types come from a schema, and keys are names."""


@st.composite
def calls_with_tools(draw: st.DrawFn, keys: st.SearchStrategy[str]) -> tuple[tuple[ToolCall, ...], list]:
    calls, tools = [], {}
    for _ in range(draw(st.integers(1, 3))):
        name = draw(NAMES.filter(lambda name: name not in tools))
        arguments = draw(st.dictionaries(keys, VALUES, max_size=3))
        types = {key: "string" if isinstance(value, str) else "object" for key, value in arguments.items()}
        tools[name] = tool(name, **types)
        calls.append(ToolCall(name, json.dumps(arguments, ensure_ascii=False)))
    return tuple(calls), list(tools.values())


@pytest.mark.parametrize("name", sorted(TOOL_FORMATS.keys() - TAGGED))
@given(calls_with_tools(TEXTS))
def test_json_calls_there_and_back(name, made) -> None:
    calls, tools = made
    parsed = TOOL_FORMATS[name].parse(TOOL_FORMATS[name].render_calls(calls), tools)
    assert parsed == ParsedAnswer("", calls)


@pytest.mark.parametrize("name", sorted(TAGGED))
@given(calls_with_tools(NAMES))
def test_tagged_calls_there_and_back(name, made) -> None:
    calls, tools = made
    parsed = TOOL_FORMATS[name].parse(TOOL_FORMATS[name].render_calls(calls), tools)
    assert parsed == ParsedAnswer("", calls)


@pytest.mark.parametrize("tool_format", TOOL_FORMATS.values(), ids=TOOL_FORMATS)
@pytest.mark.parametrize("city", ["<think>", "</think>", "a</think>b<think>c", "<think>a</think>"])
@pytest.mark.parametrize(
    "thought", ["", "<think>like <tool_call> or <function=</think>", "Begun by the prompt.</think>"]
)
def test_a_mark_of_thinking_in_an_argument_is_text(tool_format, city, thought) -> None:
    call = ToolCall("get_weather", json.dumps({"city": city}))
    assert tool_format.parse(thought + tool_format.render_calls([call, call]), TOOLS) == ParsedAnswer(
        thought, (call, call)
    )


MARKUP = ("{", '{"name": "now"', "<think>", "</think>", "</tool_call>", "[TOOL_CALLS]", "<tool_call>", "<function=")
WRITTEN = [each["text"] for recordings in RECORDED.values() for each in recordings]
FRAGMENTS = st.sampled_from([*WRITTEN, *(text[:40] for text in WRITTEN), *MARKUP, "[" * 9999])


@pytest.mark.parametrize("tool_format", TOOL_FORMATS.values(), ids=TOOL_FORMATS)
@given(st.lists(FRAGMENTS | st.text(max_size=9), max_size=6).map("".join))
def test_any_text_is_an_answer(tool_format, text) -> None:
    parsed = tool_format.parse(text, TOOLS)
    if not parsed.calls:
        assert parsed.content == text
    for call in parsed.calls:
        assert call.name in {"get_weather", "now"}
        assert isinstance(json.loads(call.arguments), dict)


@pytest.mark.parametrize("tool_format", TOOL_FORMATS.values(), ids=TOOL_FORMATS)
def test_a_bad_call_beside_a_good_one_is_text_with_a_reason(tool_format) -> None:
    good = ToolCall("get_weather", '{"city": "Paris"}')
    bad = tool_format.syntax.write(ToolCall("get_wether", '{"city": "Paris"}'), 0)
    parsed = tool_format.parse(f"{bad}\n{tool_format.render_calls([good])}", TOOLS)
    assert parsed.calls == (good,)
    assert "get_wether" in parsed.content
    assert parsed.errors == ("the call is of 'get_wether', which does not exist; there are: get_weather, now",)


MALFORMED = [
    ("hermes", "<tool_call>\n{'name': 'now'}\n</tool_call>", "the call is not JSON: Expecting property name"),
    ("hermes", '<tool_call>\n{"name": "now", "arguments": {}}', "the call does not end with '</tool_call>'"),
    ("hermes", '<tool_call>\n{"arguments": {}}\n</tool_call>', "the call names no function"),
    (
        "hermes",
        '<tool_call>\n{"name": "now", "arguments": [1]}\n</tool_call>',
        "arguments of now are not an object",
    ),
    ("hermes", "<tool_call>\n[1]\n</tool_call>", "the call is not an object with a name and arguments"),
    ("hermes", '<tool_call>\n{"name": "now", "arguments": {"a": NaN}}\n</tool_call>', "NaN is not JSON"),
    ("mistral", "[TOOL_CALLS]now", "the call does not begin like"),
    ("deepseek_v3", "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>", "the call does not begin like"),
    ("qwen3_coder", "<tool_call>\n<function=>\n</function>\n</tool_call>", "the call names no function"),
    (
        "qwen3_coder",
        "<tool_call>\n<function=now>\nsoon\n</function>\n</tool_call>",
        "of now goes on with 'soon",
    ),
    (
        "glm45",
        "<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>two</arg_value>\n</tool_call>",
        "the argument days is not integer: the call is not JSON",
    ),
]


@pytest.mark.parametrize(("name", "text", "reason"), MALFORMED)
def test_a_malformed_call_says_what_is_wrong(name, text, reason) -> None:
    parsed = TOOL_FORMATS[name].parse(text, TOOLS)
    assert parsed.content == text
    (error,) = parsed.errors
    assert reason in error


@pytest.mark.parametrize("tool_format", TOOL_FORMATS.values(), ids=TOOL_FORMATS)
def test_a_call_continues_its_opening(tool_format) -> None:
    written = tool_format.render_calls([ToolCall("now", "{}")])
    assert written.startswith(tool_format.opening())
    assert written.startswith(tool_format.opening("now"))
    assert len(tool_format.opening("now")) > len(tool_format.opening())


def test_tools_are_explained_with_an_example() -> None:
    text = TOOL_FORMATS["glm45"].render_tools(TOOLS)
    assert '{"name": "now", "parameters"' in text
    assert "<tool_call>NAME\n<arg_key>ARGUMENT</arg_key>\n<arg_value>VALUE</arg_value>\n</tool_call>" in text


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen3-8B", "qwen"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen3_coder"),
        ("Qwen/Qwen3.5-27B", "qwen3_coder"),
        ("NousResearch/Hermes-4-Qwen3-14B", "hermes"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3_json"),
        ("mistralai/Devstral-Small-2507", "mistral"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek_v3"),
        ("deepseek-ai/DeepSeek-V3.1", "deepseek_v3_1"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama3_json"),
        ("moonshotai/Kimi-K2-Instruct", "kimi_k2"),
        ("meituan-longcat/LongCat-Flash-Chat", "longcat"),
        ("zai-org/GLM-4.6", "glm45"),
        ("zai-org/GLM-5", "glm47"),
        ("bundled", "hermes"),
    ],
)
def test_the_format_of_a_family(model, name) -> None:
    assert tool_format_name(model) == name
