"""Tools that work in a rollout's sandbox, toolsets of them by name, distributions of toolsets, and which tools the
rollouts of a group get. Names and answers are those that agents of hermes-agent know.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Concatenate, Final, ParamSpec

from tinker_atropos.environments.agents.tool import Json, Tool
from tinker_atropos.errors import ConfigError
from tinker_atropos.sandboxes.sandbox import Command, Sandbox, SandboxError, SandboxLostError

P = ParamSpec("P")

MAX_FILE_BYTES: Final = 2**20
MAX_LINES: Final = 2000
MAX_MATCHES: Final = 50
COMMAND_SECONDS: Final = 120.0


def refusals_told(function: Callable[Concatenate[Sandbox, P], Json]) -> Callable[Concatenate[Sandbox, P], Json]:
    """What a sandbox refuses is an answer, too. One that is gone is not: its rollout is over."""

    @wraps(function)
    def told(sandbox: Sandbox, /, *args: P.args, **kwargs: P.kwargs) -> Json:
        try:
            return function(sandbox, *args, **kwargs)
        except SandboxLostError:
            raise
        except SandboxError as error:
            return {"error": str(error)}

    return told


@refusals_told
def terminal(sandbox: Sandbox, command: str, timeout: float = COMMAND_SECONDS) -> Json:
    result = sandbox.run(Command(command, timeout=max(0.1, timeout)))
    cut = f"the command was ended after {timeout:g} s" if result.timed_out else None
    return {"output": result.output, "exit_code": result.exit_code, "error": cut}


@refusals_told
def read_file(sandbox: Sandbox, path: str, offset: int = 1, limit: int = MAX_LINES) -> Json:
    lines = sandbox.read_file(path, MAX_FILE_BYTES).decode(errors="replace").splitlines(keepends=True)
    start = max(1, offset) - 1
    return {"content": "".join(lines[start : start + max(0, limit)]), "total_lines": len(lines)}


@refusals_told
def write_file(sandbox: Sandbox, path: str, content: str) -> Json:
    written = content.encode()
    sandbox.write_file(path, written)
    return {"success": True, "bytes_written": len(written)}


@refusals_told
def patch(sandbox: Sandbox, path: str, old_string: str, new_string: str, replace_all: bool = False) -> Json:
    text = sandbox.read_file(path, MAX_FILE_BYTES).decode(errors="surrogateescape")
    found = text.count(old_string) if old_string else 0
    if found == 0:
        return {"error": f"old_string is not in {path}: read the file, and repeat its text exactly"}
    if found > 1 and not replace_all:
        return {"error": f"old_string is {found} times in {path}: add lines around it, or set replace_all"}
    sandbox.write_file(path, text.replace(old_string, new_string).encode(errors="surrogateescape"))
    return {"success": True, "replaced": found}


@refusals_told
def search_files(
    sandbox: Sandbox,
    pattern: str,
    path: str = ".",
    *,
    target: str = "content",
    file_glob: str = "*",
    limit: int = MAX_MATCHES,
) -> Json:
    at_most = max(1, min(limit, 10 * MAX_MATCHES))
    if target == "files":
        return {"files": sandbox.find_files(pattern, path, at_most)}
    found = sandbox.find_text(pattern, path, file_glob, at_most)
    return {"matches": [{"path": each.path, "line": each.line, "content": each.text} for each in found]}


def _tool(function: Callable[..., Json], description: str, required: Sequence[str], **properties: Json) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": [*required]}
    return Tool(function.__name__, description, parameters, function, in_sandbox=True)


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


def _number(description: str) -> Json:
    return {"type": "integer", "description": description}


SANDBOX_TOOLS: Final = (
    _tool(
        terminal,
        "Run a shell command in your sandbox. Files stay between calls; processes in the background end with it.",
        ["command"],
        command=_text("The command."),
        timeout={"type": "number", "description": "Seconds after which it is ended."},
    ),
    _tool(
        read_file,
        "Read a text file.",
        ["path"],
        path=_text("The file."),
        offset=_number("First line, from 1."),
        limit=_number("Most lines."),
    ),
    _tool(
        write_file,
        "Write a text file. What was in it is lost.",
        ["path", "content"],
        path=_text("The file."),
        content=_text("All of its text."),
    ),
    _tool(
        patch,
        "Replace a text in a file.",
        ["path", "old_string", "new_string"],
        path=_text("The file."),
        old_string=_text("The text as it is; it must be in the file once."),
        new_string=_text("What takes its place."),
        replace_all={"type": "boolean", "description": "Replace it wherever it is."},
    ),
    _tool(
        search_files,
        "Find lines by a regular expression, or files by a pattern of their names.",
        ["pattern"],
        pattern=_text("A regular expression; for files a glob such as *.py."),
        target={"type": "string", "enum": ["content", "files"], "description": "What to find."},
        path=_text("Where to look."),
        file_glob=_text("Only in files with such names."),
        limit=_number("Most results."),
    ),
)


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
