"""Pydantic's faults in the words of the checks of settings."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from rl_operator.api.environment import Environment
from rl_operator.api.runtime import Runtime
from rl_operator.api.training_run import TrainingRun
from rl_operator.check.field_rules import type_problem
from rl_operator.documents.fault_words import _PATTERNS, allowed_instead


def words(annotation: Any, value: Any) -> tuple[str, str | None]:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(annotation).validate_python(value)
    return allowed_instead(caught.value.errors()[0])


@pytest.mark.parametrize(
    ("annotation", "value", "source"),
    [
        (int, "many", "int"),
        (float, "many", "float"),
        (str, 3, "str"),
        (bool, "maybe", "bool"),
        (Literal["a", "b", "c"], "d", "Literal['a', 'b', 'c']"),
        (dict[str, Any], "x", "dict"),
        (tuple[str, ...], "x", "list"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_types_have_the_words_of_settings(annotation: Any, value: Any, source: str) -> None:
    assert words(annotation, value) == ("WrongType", type_problem(value, source))


@pytest.mark.parametrize(
    ("annotation", "value", "allowed"),
    [
        (Annotated[int, Field(ge=1)], 0, "at least 1"),
        (Annotated[float, Field(gt=0)], 0.0, "above 0"),
        (Annotated[float, Field(le=240)], 241.0, "at most 240"),
        (Annotated[str, Field(min_length=1)], "", "at least 1 character long"),
        (Annotated[str, Field(max_length=63)], "x" * 64, "at most 63 characters long"),
        (Annotated[tuple[str, ...], Field(max_length=2)], ["a"] * 3, "at most 2 entries long"),
    ],
    ids=str,
)
def test_limits_are_out_of_bounds(annotation: Any, value: Any, allowed: str) -> None:
    assert words(annotation, value) == ("OutOfBounds", allowed)


@pytest.mark.parametrize("kind", [TrainingRun, Runtime, Environment])
def test_no_refusal_shows_a_pattern_of_the_kinds(kind: type[Any]) -> None:
    def patterns(schema: Any) -> set[str]:
        if isinstance(schema, list):
            return {found for each in schema for found in patterns(each)}
        if not isinstance(schema, dict):
            return set()
        own = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set()
        return own | {found for name, each in schema.items() if name != "pattern" for found in patterns(each)}

    assert patterns(kind.model_json_schema()) <= set(_PATTERNS)
