"""Not written yet."""

from rl_operator.tools.tool import Tool

TOOLS: tuple[Tool, ...] = ()
