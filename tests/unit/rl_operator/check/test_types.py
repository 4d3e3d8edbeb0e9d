from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        ("8", "int", "a whole number"),
        (1.5, "int", "a whole number"),
        (True, "int", "a whole number"),
        (True, "float", "a number"),
        (1, "bool", "true or false"),
        (1, "str", "a text"),
        (None, "int", "a whole number"),
        ("8", "int | None", "a whole number or null"),
        ("8", "Optional[int]", "a whole number or null"),
        (1.5, "Union[str, int]", "a text or a whole number"),
        ("c", "Literal['a', 'b']", "one of a, b"),
        (True, "Literal[1, 2]", "one of 1, 2"),
        ([1, "x"], "list[int]", "a list of a whole number"),
        ("x", "tuple[int, ...]", "a list of a whole number"),
        ({"a": "x"}, "dict[str, float]", "a mapping to a number"),
        ([], "dict", "a mapping"),
    ],
)
def test_does_not_fit(value: Any, annotation: str, expected: str) -> None:
    assert type_problem(value, annotation) == expected


@given(
    st.text(alphabet="intsrflo|[],. NoeLil'\"Optal(){}*"), st.none() | st.integers() | st.text() | st.lists(st.none())
)
def test_any_annotation_is_looked_at_without_failing(annotation: str, value: Any) -> None:
    type_problem(value, annotation)
