"""Toolsets by name, distributions of them, and which tools the rollouts of a group get."""

import random
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from tinker_atropos.environments.agents.sandbox_tools import SANDBOX_TOOLS
from tinker_atropos.environments.agents.tool import Tool
from tinker_atropos.errors import ConfigError

TOOLSETS: Final[Mapping[str, tuple[str, ...]]] = {
    "terminal": ("terminal",),
    "files": ("read_file", "write_file", "patch"),
    "file": ("read_file", "write_file", "patch", "search_files"),
    "search": ("search_files",),
}
"""`file` is hermes-agent's name for files and search."""

OFF: Final[Mapping[str, str]] = {
    "web": "an environment has no way to the web",
    "browser": "an environment has no way to the web",
}

DISTRIBUTIONS: Final[Mapping[str, Mapping[str, int]]] = {
    "default": {"terminal": 100, "files": 100, "search": 100},
    "development": {"terminal": 80, "files": 80, "search": 60},
    "terminal_tasks": {"terminal": 97, "files": 97, "search": 40},
    "terminal_only": {"terminal": 100},
    "minimal": {"files": 100},
}
"""How likely a group gets each toolset, in percent, independently of the others; at least one, the likeliest."""


def check_toolsets(enabled: Sequence[str] | None, disabled: Sequence[str] | None, distribution: str | None) -> None:
    """Raises ConfigError naming the field, the value and what is allowed."""
    for field, names in (("enabled_toolsets", enabled), ("disabled_toolsets", disabled)):
        for name in names or ():
            if name not in TOOLSETS and not (field == "disabled_toolsets" and name in OFF):
                raise ConfigError(f"env.{field} names {name!r}, {_why_not(name)}")
    if distribution is not None and distribution not in DISTRIBUTIONS:
        raise ConfigError(f"env.distribution is {distribution!r}; it must be one of {', '.join(DISTRIBUTIONS)}")
    if distribution is not None and enabled is not None:
        raise ConfigError("env.distribution and env.enabled_toolsets exclude each other: leave one of them out")


def _why_not(name: str) -> str:
    if name in OFF:
        return f"which is off here: {OFF[name]}"
    near = get_close_matches(name, TOOLSETS, n=1)
    return f"which is not a toolset{f'; did you mean {near[0]!r}?' if near else ''} (known: {', '.join(TOOLSETS)})"


def tools_of_group(
    enabled: Sequence[str] | None,
    disabled: Sequence[str] | None,
    distribution: str | None,
    own: Iterable[Tool],
    generator: random.Random,
) -> dict[str, Tool]:
    """By name: an author's own, and those of the toolsets. Without any wish: all of them."""
    chosen = _drawn(DISTRIBUTIONS[distribution], generator) if distribution else enabled
    names = {name for toolset in (TOOLSETS if chosen is None else chosen) for name in TOOLSETS[toolset]}
    names -= {name for toolset in disabled or () for name in TOOLSETS.get(toolset, ())}
    return {tool.name: tool for tool in (*(each for each in SANDBOX_TOOLS if each.name in names), *own)}


def _drawn(distribution: Mapping[str, int], generator: random.Random) -> list[str]:
    drawn = [name for name, percent in distribution.items() if generator.random() * 100 < percent]
    return drawn or [max(distribution, key=lambda name: distribution[name])]
