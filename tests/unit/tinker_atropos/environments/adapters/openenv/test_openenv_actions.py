import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.environments.adapters.openenv.openenv_actions import (
    FieldSchemas,
    JsonActions,
    ServerTool,
    ToolCalls,
    json_object,
    own_schema,
    plain_text,
    schema_text,
    takes_tool_calls,
)
from tinker_atropos.environments.adapters.openenv.openenv_client import RefusedActionError, step_frame

NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
MOVE = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {"metadata": {"type": "object"}}, "additionalProperties": False}
FIELDS = st.dictionaries(st.text(max_size=6), st.integers() | st.text(max_size=6) | st.none(), max_size=4)
PIECES = st.sampled_from(
    [
        "```",
        "```json\n",
        "{",
        "}",
        '{"number": 5}',
        '"number"',
        ":",
        "5",
        " ",
        "\n",
        "[",
        "]",
        '"',
        "</think>",
        "NaN",
        "9" * 5000,
        "\\ud800",
        "\0",
    ]
)
ANSWERS = st.text(max_size=40) | st.lists(PIECES, max_size=12).map("".join)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ('{"a": 1}', {"a": 1}),
        ('\n {"a": 1}\n', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('```{"a": 1}```', {"a": 1}),
        ('I try\n```\n{"a": 1}\n```\nor rather\n```json\n{"a": 2}\n```\n', {"a": 2}),
        ('```json\n{"a": 1}\n```\n```python\nprint()\n```', {"a": 1}),
        ('<think>{"a": 1} or so</think>{"a": 2}', {"a": 2}),
        ('my move is {"a": 1}', None),
        ('{"a": 1} {"a": 2}', None),
        ("[1]", None),
        ("5", None),
        ('{"a": NaN}', None),
        ('{"a": ', None),
        ("[" * 100_000, None),
        ('{"a":' * 100_000, None),
        ("", None),
    ],
)
def test_json_objects(answer, found):
    assert json_object(answer) == found


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (" left\n", "left"),
        ("```python\nprint(1)\n```", "print(1)"),
        ("```\nprint(1)\n```", "print(1)"),
        ("run\n```python\nprint(1)\n```", "print(1)"),
        ("```\na\n```\n```\nb\n```", "```\na\n```\n```\nb\n```"),
        ("<think>right?</think> left", "left"),
        ("```", "```"),
    ],
)
def test_plain_answers(answer, text):
    assert plain_text(answer) == text


@pytest.mark.parametrize(
    ("schema", "answer", "said"),
    [
        (NUMBER, "five", "The answer is neither a JSON object nor a value of number."),
        (NUMBER, "", "The answer is empty."),
        (NUMBER, "```\n```", "The answer is empty."),
        (NUMBER, "{}", "number is missing."),
        (MOVE, "3", "The answer is not a JSON object."),
        (MOVE, '{"z": 1}', "x, y is missing."),
        (MOVE, '{"x": 1, "y": 2, "z": 3}', "z is not a field of the action."),
        (NOTHING, "go", "The answer is not a JSON object."),
    ],
)
def test_what_is_refused(schema, answer, said):
    with pytest.raises(RefusedActionError) as refused:
        JsonActions(schema).parse(answer)
    assert str(refused.value) == said


def test_what_is_allowed():
    assert (
        JsonActions(MOVE).allowed
        == "An action is a JSON object with x (integer), y (integer), note (string, optional)."
    )
    assert JsonActions(NOTHING).allowed == "The only action is {}."
    assert JsonActions({}).allowed == "The only action is {}."


def test_types_are_left_to_the_server():
    assert JsonActions(MOVE).parse('{"x": "1", "y": null}') == {"x": "1", "y": None}


@given(FIELDS)
def test_an_open_schema_takes_any_object(fields):
    action = JsonActions({"type": "object"}).parse(json.dumps(fields))
    assert action == fields


@given(ANSWERS, st.sampled_from([NUMBER, MOVE, NOTHING, {}]))
def test_any_answer_is_an_action_that_can_be_sent_or_a_sentence(answer, schema):
    try:
        action = JsonActions(schema).parse(answer)
    except RefusedActionError:
        return
    assert json.loads(step_frame(action))["data"] == action


class TestToolCalls:
    CALLS = ToolCalls([ServerTool(name="look"), ServerTool(name="go", description="Walk.", input_schema=MOVE)])

    def test_call(self):
        call = '{"tool_name": "go", "arguments": {"x": 1, "y": 2}}'
        assert self.CALLS.parse(call) == {"type": "call_tool", "tool_name": "go", "arguments": {"x": 1, "y": 2}}

    def test_without_arguments(self):
        parsed = self.CALLS.parse('{"type": "call_tool", "tool_name": "look"}')
        assert parsed == {"type": "call_tool", "tool_name": "look", "arguments": {}}

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            ("look", "The answer is not a JSON object."),
            ("{}", "tool_name is 'None', which is not a tool."),
            ('{"tool_name": ["look"]}', "tool_name is \"['look']\", which is not a tool."),
            ('{"tool_name": "look", "arguments": "x"}', "arguments is not a JSON object."),
            ('{"tool_name": "look", "arguments": null}', "arguments is not a JSON object."),
            ('{"tool_name": "look", "x": 1}', "x is not a field of a call."),
        ],
    )
    def test_what_is_refused(self, answer, said):
        with pytest.raises(RefusedActionError) as refused:
            self.CALLS.parse(answer)
        assert str(refused.value) == said

    @given(ANSWERS)
    def test_any_answer_is_a_call_or_a_sentence(self, answer):
        with pytest.raises(RefusedActionError, match=r"\.$"):
            self.CALLS.parse(answer)

    def test_it_says_which_tools_there_are(self):
        assert self.CALLS.allowed.endswith("the tools are look, go.")
        assert "- go: Walk.\n  arguments: " in self.CALLS.instructions()
        many = ToolCalls([ServerTool(name=f"tool{number}") for number in range(20)])
        assert many.allowed.endswith("tool11, 8 more.")
        assert ToolCalls([]).allowed.endswith("the tools are none.")


def test_tool_calls_are_recognized_by_their_title():
    assert takes_tool_calls({"title": "CallToolAction"})
    assert not takes_tool_calls(NUMBER)


COLORS = {"Color": {"enum": ["red", "blue", 3], "title": "Color"}, "Loop": {"$ref": "#/$defs/Loop"}}
COLORS["Tree"] = {"anyOf": [{"$ref": "#/$defs/Tree"}] * 50}
WORDS = st.sampled_from(
    ["type", "properties", "required", "$ref", "$defs", "anyOf", "enum", "const", "a", "string", "array", "#/$defs/a"]
)
SCHEMAS = st.dictionaries(
    WORDS,
    st.recursive(
        WORDS | st.none() | st.booleans() | st.integers(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
        max_leaves=8,
    ),
)


def fields_of(schema):
    return FieldSchemas({"properties": {"value": schema}, "required": ["value"], "$defs": COLORS})


VALUES = [
    ({"type": "integer"}, "5", 5),
    ({"type": "integer"}, "-12", -12),
    ({"type": "number"}, "0.5", 0.5),
    ({"type": "number"}, "3", 3.0),
    ({"type": "boolean"}, "True", True),
    ({"type": "boolean"}, "no", False),
    ({"type": "string"}, "left and right", "left and right"),
    ({"type": "string"}, '"left"', "left"),
    ({"type": "string"}, '"left" and right', '"left" and right'),
    ({"type": "array"}, "[1, 2]", [1, 2]),
    ({"enum": ["red", "blue"]}, "blue", "blue"),
    ({"enum": ["red", "blue"]}, '"blue"', "blue"),
    ({"enum": [1, 2]}, "2", 2),
    ({"const": "go"}, "go", "go"),
    ({"$ref": "#/$defs/Color"}, "red", "red"),
    ({"anyOf": [{"$ref": "#/$defs/Color"}, {"type": "null"}]}, "red", "red"),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5", 5),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "five", "five"),
    ({"allOf": [{"$ref": "#/$defs/Color"}]}, "red", "red"),
    ({}, "anything", "anything"),
]


@pytest.mark.parametrize(("schema", "text", "value"), VALUES)
def test_values(schema, text, value):
    found = fields_of(schema).value_of("value", text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer"}, "5.0"),
        ({"type": "integer"}, "five"),
        ({"type": "integer"}, "٣"),
        ({"type": "integer"}, "9" * 30),
        ({"type": "number"}, "nan"),
        ({"type": "number"}, "1e999"),
        ({"type": "boolean"}, "maybe"),
        ({"type": "array"}, "{}"),
        ({"type": "array"}, "1, 2"),
        ({"type": "null"}, "null"),
        ({"type": "object"}, "{"),
        ({"$ref": "#/$defs/Color"}, "green"),
        ({"$ref": "#/$defs/Loop"}, "x"),
        ({"$ref": "#/$defs/Tree"}, "x"),
        ({"$ref": "#/$defs/Nowhere"}, "x"),
        (None, "x"),
    ],
)
def test_what_is_no_value(schema, text):
    with pytest.raises(ValueError, match="is not the value of value"):
        fields_of(schema).value_of("value", text)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer"}, "value (integer)"),
        ({"$ref": "#/$defs/Color"}, 'value (one of "red", "blue", 3)'),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "value (integer or null)"),
        ({"enum": list(range(20))}, "value (one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …)"),
        ({"$ref": "#/$defs/Loop"}, "value (any)"),
    ],
)
def test_in_words(schema, words):
    assert fields_of(schema).in_words() == words


def test_many_fields_in_words():
    words = FieldSchemas({"properties": {f"f{n}": {"type": "null"} for n in range(15)}}).in_words()
    assert words.endswith("f11 (null, optional), and 3 more")


def test_the_schema_in_a_prompt():
    schema = {
        "title": "Guess",
        "properties": {"metadata": {"type": "object"}, "title": {"title": "Title", "type": "string"}},
        "required": ["title"],
    }
    assert json.loads(schema_text(own_schema(schema))) == {
        "properties": {"title": {"type": "string"}},
        "required": ["title"],
    }


@given(SCHEMAS, st.text(max_size=20))
def test_any_schema_of_a_server_can_be_said_and_answered(schema, answer):
    actions = JsonActions(schema)
    assert actions.instructions()
    assert actions.allowed
    with contextlib.suppress(RefusedActionError):
        assert isinstance(actions.parse(answer), dict)
