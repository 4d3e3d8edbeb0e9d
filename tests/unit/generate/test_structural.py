from typing import Any, Literal

import pytest
from pydantic import Field

from generate.structural import bounded, structural_schema
from rl_operator.api.model import ApiModel, keyed_by


class Part(ApiModel):
    """A part."""

    size: int = Field(ge=0, le=9)


class Whole(ApiModel):
    """A whole."""

    part: Part = Field(description="The field's own sentence wins.")
    maybe: Part | None = None
    parts: tuple[Part, ...] = Field(default=(), json_schema_extra=keyed_by("size"))
    by_name: dict[str, Part] = Field(default_factory=dict)
    free: dict[str, Any] = Field(default_factory=dict)
    anything: Any = None
    quantity: dict[str, str | int] = Field(default_factory=dict)
    choice: Literal["a", "b"] | None = "a"
    share: float = 0.5


PART = {
    "type": "object",
    "properties": {"size": {"type": "integer", "format": "int64", "minimum": 0, "maximum": 9}},
    "required": ["size"],
    "description": "A part.",
}


ANYTHING = {
    "x-kubernetes-preserve-unknown-fields": True,
    "nullable": True,
    "maxLength": 50_000,
    "maxItems": 1_000,
    "maxProperties": 1_000,
}


def test_a_status_gets_bounds_where_it_has_none() -> None:
    schema = {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "short": {"type": "string", "maxLength": 9},
            "choice": {"type": "string", "enum": ["a"]},
            "list": {"type": "array", "items": {"type": "string"}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    }
    assert bounded(schema)["properties"] == {
        "text": {"type": "string", "maxLength": 32_768},
        "short": {"type": "string", "maxLength": 9},
        "choice": {"type": "string", "enum": ["a"]},
        "list": {"type": "array", "maxItems": 1_000, "items": {"type": "string", "maxLength": 32_768}},
        "map": {"type": "object", "maxProperties": 1_000, "additionalProperties": {"type": "integer"}},
    }


def test_every_shape() -> None:
    assert structural_schema(Whole) == {
        "type": "object",
        "description": "A whole.",
        "required": ["part"],
        "properties": {
            "part": PART | {"description": "The field's own sentence wins."},
            "maybe": PART,
            "parts": {
                "type": "array",
                "items": PART,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["size"],
            },
            "byName": {"type": "object", "additionalProperties": PART},
            "free": {"type": "object", "maxProperties": 256, "additionalProperties": ANYTHING},
            "anything": ANYTHING,
            "quantity": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}},
            "choice": {"type": "string", "enum": ["a", "b"], "default": "a", "nullable": True},
            "share": {"type": "number", "default": 0.5},
        },
    }


def test_a_union_without_a_structural_schema_is_an_error() -> None:
    class Odd(ApiModel):
        field: int | bool

    with pytest.raises(TypeError, match="boolean or integer"):
        structural_schema(Odd)
