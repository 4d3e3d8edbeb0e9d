"""docs/reference/agent-tools.md lists every tool, with its effect and its parameters."""

import re
from pathlib import Path

from rl_operator.tools.agent_tool import input_schema
from rl_operator.tools.toolset import TOOLS

ROW = re.compile(r"^\| `(rl_\w+)` \| (\w+) \| [^|]+ \|([^|]*)\|$", re.MULTILINE)


def test_the_page_lists_every_tool_with_its_effect_and_parameters() -> None:
    page = Path("docs/reference/agent-tools.md").read_text(encoding="utf-8")
    documented = {name: (effect, re.findall(r"`(\w+)`", listed)) for name, effect, listed in ROW.findall(page)}
    assert documented == {tool.name: (tool.effect, list(input_schema(tool)["properties"])) for tool in TOOLS}


def test_the_page_gives_their_number() -> None:
    assert len(TOOLS) == 15, "the page says fifteen"
