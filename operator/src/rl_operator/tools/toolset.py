"""All tools, in the order in which an agent meets them."""

from collections.abc import Mapping
from typing import Final

from rl_operator.tools import (
    config,
    drafts,
    editing,
    environments,
    health,
    inference,
    listing,
    logs,
    results,
    starting,
    status,
    stopping,
)
from rl_operator.tools.tool import Tool

TOOLS: Final[tuple[Tool, ...]] = (
    *environments.TOOLS,
    *drafts.TOOLS,
    *config.TOOLS,
    *editing.TOOLS,
    *inference.TOOLS,
    *starting.TOOLS,
    *status.TOOLS,
    *logs.TOOLS,
    *stopping.TOOLS,
    *results.TOOLS,
    *listing.TOOLS,
    *health.TOOLS,
)
BY_NAME: Final[Mapping[str, Tool]] = {tool.name: tool for tool in TOOLS}
