"""What clients learn about a tool's parameters."""

from typing import Any, Literal

import pytest
from pydantic import Field

from rl_operator.tools.tool import Arguments, Tool, input_schema
from rl_operator.tools.toolset import TOOLS


class Odd(Arguments):
    """Said by the tool's own description."""

    title: str = Field(description="A parameter of this name.")
    run_id: str | None = None
    models: list[str] | None = Field(default=None, description="Their names.")
    until: Literal["change", "step"] = "change"
    value: Any = None
    limit: int | str | None = None


def test_schemas_hold_what_matters_and_nothing_else() -> None:
    assert input_schema(Tool("odd", "", "", Odd, lambda _, __: {}, "reads")) == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "A parameter of this name."},
            "run_id": {"type": "string"},
            "models": {"type": "array", "items": {"type": "string"}, "description": "Their names."},
            "until": {"type": "string", "enum": ["change", "step"], "default": "change"},
            "value": {},
            "limit": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        },
        "required": ["title"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_parameter_is_described(tool: Tool) -> None:
    schema = input_schema(tool)
    assert schema["type"] == "object"
    assert [name for name, parameter in schema["properties"].items() if not parameter.get("description")] == []
