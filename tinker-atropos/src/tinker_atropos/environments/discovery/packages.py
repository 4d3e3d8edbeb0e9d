"""The installed packages whose classes environments derive from: their files are read, too, and never imported."""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Final

from tinker_atropos.environments.discovery.modules import Module
from tinker_atropos.environments.discovery.source_parser import UnreadableSourceError, parse_file

READABLE_PACKAGES: Final = ("tinker_atropos", "atroposlib")


@cache
def package_folders(package: str) -> tuple[str, ...]:
    """Where a top-level package lies; empty where it is not installed."""
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
