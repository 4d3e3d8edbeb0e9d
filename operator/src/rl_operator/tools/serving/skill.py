"""How agents should use the tools, as text: SKILL.md, and its first section as an MCP server's instructions."""

from pathlib import Path
from typing import Final

SKILL_NAME: Final = "rl-training"
SKILL_FILE: Final = Path(__file__).with_name("SKILL.md")

_IN_SHORT: Final = "## In short\n"


def skill_text() -> str:
    return SKILL_FILE.read_text(encoding="utf-8")


def in_short() -> str:
    """The section of that name: what an MCP server says about itself."""
    return skill_text().partition(_IN_SHORT)[2].partition("\n## ")[0].strip()
