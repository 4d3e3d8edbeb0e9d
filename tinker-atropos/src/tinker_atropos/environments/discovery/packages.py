"""The Python files of a folder, the dotted names by which they may be imported, and the installed packages they use.

Files of packages whose classes environments derive from are read, and never imported.
"""

import importlib.util
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tinker_atropos.environments.discovery.modules import Module
from tinker_atropos.environments.discovery.source_parser import UnreadableSourceError, parse_file


def python_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """(relative path, path), sorted. Hidden folders are skipped; links to folders are not followed."""
    found: list[Path] = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".") and each != "__pycache__"]
        found += [Path(parent, name) for name in files if name.endswith(".py") and not name.startswith(".")]
    for path in sorted(found):
        yield path.relative_to(folder).as_posix(), path


def dotted_name(file: str) -> str:
    parts = file.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def importable_names(files: dict[str, Path], *, with_ends: bool) -> dict[str, str]:
    """Dotted name -> file, also for suffixes of a name: `agents` for lib/agents.py."""
    names = {name: file for file in files if (name := dotted_name(file))}
    ends = {end: file for name, file in reversed(names.items()) for end in without_leading_parts(name)}
    return (ends if with_ends else {}) | names


def without_leading_parts(name: str) -> list[str]:
    """`a.b.c`, `b.c`, `c`: an import may begin with the name of the folder itself, or of one above it."""
    parts = name.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


READABLE_PACKAGES: Final = ("tinker_atropos", "atroposlib")

HERMES_MODULES: Final = ("environments.hermes_base_env", "environments.agent_loop", "environments.tool_context")
"""Ours too, by hermes-agent's names. Any other module of `environments` is the author's."""


@cache
def package_folders(package: str) -> tuple[str, ...]:
    """Where a top-level package is; empty if it is not installed."""
    spec = importlib.util.find_spec(package)  # of a top-level package: finds it and imports nothing
    return tuple(spec.submodule_search_locations or ()) if spec else ()


@cache
def package_module(name: str) -> Module | None:
    """A module of an installed package, by its dotted name."""
    package, *parts = name.split(".")
    for folder in package_folders(package):
        path = Path(folder, *parts)
        for candidate in (path / "__init__.py", path.with_suffix(".py")):
            if candidate.is_file():
                return _read(name, candidate)
    return None


def _read(name: str, path: Path) -> Module | None:
    try:
        return Module(name, name, path.name == "__init__.py", parse_file(path))
    except UnreadableSourceError:
        return None
