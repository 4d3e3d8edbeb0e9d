import json
import typing
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from rl_operator.check.types import type_problem


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (1, "int"),
        (1, "float"),
        (1.5, "float"),
        ("x", "str"),
        (True, "bool"),
        (None, "int | None"),
        (1, "int | None"),
        (None, "Optional[str]"),
        (None, "typing.Optional[str]"),
        (1, "Union[str, int]"),
        ("a", "Literal['a', 'b']"),
        ("a", "Optional[Literal['a', 'b']]"),
        ([1, 2], "list[int]"),
        ([1, None], "List[Optional[int]]"),
        ([1, 2], "tuple[int, ...]"),
        ([1, "x"], "tuple[int, str]"),
        ([], "tuple[int, ...]"),
        ({"1": "a"}, "dict[int, str]"),
        (-1, "Literal[-1, 1]"),
        ("x", "Literal[Color.RED]"),
        ([1, "x"], "list"),
        ({"a": 1.5}, "dict[str, float]"),
        ({"a": []}, "Dict[str, Any]"),
        (1, "Annotated[int, Field(gt=0)]"),
        ("STOP_TRAIN", "EvalHandlingEnum"),  # a class of the environment's own: it decides at its start
        (1, "not an ( annotation"),
        (1, ""),
        (1, "Any"),
        (1, "'ForwardReference'"),
    ],
)
def test_fits(value: Any, annotation: str) -> None:
    assert type_problem(value, annotation) is None


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        ("8", "int", "an integer"),
        (1.5, "int", "an integer"),
        (True, "int", "an integer"),
        (True, "float", "a number"),
        (1, "bool", "true or false"),
        (1, "str", "a string"),
        (None, "int", "an integer"),
        ("8", "int | None", "an integer or null"),
        ("8", "Optional[int]", "an integer or null"),
        (1.5, "Union[str, int]", "a string or an integer"),
        ("c", "Literal['a', 'b']", "one of a, b"),
        ("c", "float | Literal['auto']", "a number or auto"),
        (True, "Literal[1, 2]", "one of 1, 2"),
        ([1, "x"], "list[int]", "a list, each item an integer"),
        ("x", "tuple[int, ...]", "a list, each item an integer"),
        ({"a": "x"}, "dict[str, float]", "a mapping, each value a number"),
        ([1], "tuple[int, str]", "a list, each item an integer"),
        ({"a": "x"}, "dict[int, str]", "a mapping, each value a string"),
        ([], "dict", "a mapping"),
    ],
)
def test_does_not_fit(value: Any, annotation: str, expected: str) -> None:
    assert type_problem(value, annotation) == expected


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ("red", "Color"),
        ("red", "Color | None"),
        (None, "Optional[Color]"),
        (["red", "blue"], "list[Color]"),
        ({"a": "red"}, "dict[str, Color]"),
        (1, "Color | int"),
        (1, "Color | Any"),
    ],
)
def test_an_enums_choices_are_taken(value: Any, annotation: str) -> None:
    assert type_problem(value, annotation, ["red", "blue"]) is None


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        ("green", "Color", "one of red, blue"),
        (None, "Color", "one of red, blue"),
        (1, "Color | None", "one of red, blue or null"),
        (["red", 1], "list[Color]", "a list, each item one of red, blue"),
    ],
)
def test_other_values_are_refused(value: Any, annotation: str, expected: str) -> None:
    assert type_problem(value, annotation, ["red", "blue"]) == expected


simple_types = st.sampled_from(
    ["int", "float", "str", "bool", "None", "Any", "Color", "Literal['a', 'red']", "Literal[0, 1]", "Literal[True]"]
)
annotations = st.recursive(
    simple_types,
    lambda inner: st.one_of(
        inner.map("list[{}]".format),
        inner.map("Optional[{}]".format),
        inner.map("tuple[{}, ...]".format),
        inner.map("dict[str, {}]".format),
        st.builds("Union[{}, {}]".format, inner, inner),
        st.builds("tuple[{}, {}]".format, inner, inner),
    ),
    max_leaves=4,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2).filter(lambda x: not x.is_integer())
    | st.sampled_from(["a", "red", "", "1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "1"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


class Color(Enum):
    RED = "red"
    ONE = 1


def has_boolean(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, bool) or any(map(has_boolean, inner))


@settings(max_examples=500, deadline=None)
@given(json_values, annotations)
def test_the_environment_container_agrees(value: Any, annotation: str) -> None:
    """Both ways, but for one rule of ours: true and false are never taken for the 1 and 0 of an enum or Literal."""
    adapter = TypeAdapter[Any](eval(annotation, {**vars(typing), "Color": Color}))
    ours = type_problem(value, annotation, ["red", 1]) is None
    try:
        adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError:
        assert not ours
    else:
        assert ours or has_boolean(value) or "True" in annotation


@given(
    st.text(alphabet="intsrflo|[],. NoeLil'\"Optal(){}*"), st.none() | st.integers() | st.text() | st.lists(st.none())
)
def test_any_annotation_is_checked_without_failing(annotation: str, value: Any) -> None:
    type_problem(value, annotation)
