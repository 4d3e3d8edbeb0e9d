"""What clients and readers learn about tools and their parameters."""

import re
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field

from rl_operator.tools.agent_tool import ANY_JSON, AgentTool, Arguments, input_schema
from rl_operator.tools.answers.shown_text import tokens
from rl_operator.tools.serving.mcp_server import described_tool
from rl_operator.tools.toolset import TOOLS


class Odd(Arguments):
    """Said by the tool's own description."""

    title: str = Field(description="A parameter of this name.")
    run_id: str | None = None
    models: list[str] | None = Field(default=None, description="Their names.")
    until: Literal["change", "step"] = "change"
    value: Any = Field(default=None, json_schema_extra=ANY_JSON)
    limit: int | str | None = None
    tail: int = Field(default=40, ge=1, le=200)
    dry_run: bool = False


def test_schemas_hold_what_matters_and_nothing_else() -> None:
    assert input_schema(AgentTool("odd", "", "", Odd, lambda _, __: {}, "reads")) == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "A parameter of this name."},
            "run_id": {"type": "string"},
            "models": {"type": "array", "items": {"type": "string"}, "description": "Their names."},
            "until": {"type": "string", "enum": ["change", "step"], "default": "change"},
            "value": {"type": ["string", "number", "boolean", "object", "array", "null"], "items": {}},
            "limit": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "tail": {"type": "integer", "default": 40},
            "dry_run": {"type": "boolean"},
        },
        "required": ["title"],
    }


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_parameter_is_described(tool: AgentTool) -> None:
    schema = input_schema(tool)
    assert schema["type"] == "object"
    assert [name for name, parameter in schema["properties"].items() if not parameter.get("description")] == []
    assert [name for name, parameter in schema["properties"].items() if "type" not in parameter] == []


MOST_TOKENS = 2_100
"""Every conversation with an agent pays for the list of tools, whether they are called or not."""


def test_all_tools_together_are_small() -> None:
    described = [described_tool(tool).model_dump(mode="json", by_alias=True, exclude_none=True) for tool in TOOLS]
    assert tokens({"tools": described}) <= MOST_TOKENS


ROW = re.compile(r"^\| `(rl_\w+)` \| (\w+) \| [^|]+ \|([^|]*)\|$", re.MULTILINE)


def test_the_page_lists_every_tool_with_its_effect_and_parameters() -> None:
    page = Path("docs/reference/agent-tools.md").read_text(encoding="utf-8")
    documented = {name: (effect, re.findall(r"`(\w+)`", listed)) for name, effect, listed in ROW.findall(page)}
    assert documented == {tool.name: (tool.effect, list(input_schema(tool)["properties"])) for tool in TOOLS}


def test_the_page_gives_their_number() -> None:
    assert len(TOOLS) == 15, "the page says fifteen"
