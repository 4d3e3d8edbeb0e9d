import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.environments.adapters.openenv.openenv_actions import JsonActions
from tinker_atropos.environments.adapters.openenv.openenv_frames import RefusedActionError
from tinker_atropos.environments.adapters.openenv.openenv_schema import FieldSchemas, own_schema, schema_text

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
