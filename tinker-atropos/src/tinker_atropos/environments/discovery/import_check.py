"""What cannot be imported the runner's way: the entry's folder is first on Python's path, and is not a package."""

import ast
import sys
from collections.abc import Iterable
from typing import Final

from tinker_atropos.environments.discovery.modules import Module
from tinker_atropos.environments.discovery.packages import READABLE_PACKAGES, dotted_name
from tinker_atropos.environments.discovery.source_parser import Problem

TAKEN_NAMES: Final = frozenset({*sys.stdlib_module_names, *READABLE_PACKAGES, "wandb"})
"""Modules that exist before any file of an environment: one of the same name could not be imported, or would shadow
them for other modules. Only the runner knows what else is installed, and refuses those names too.
"""


def name_problem(entry: Module, files: Iterable[str]) -> Problem | None:
    """A file or package in the entry's folder that has a taken name."""
    for file in files:
        name = _below(_parent(entry.name), dotted_name(file))
        if name in TAKEN_NAMES:
            return Problem("NotImportable", file, None, taken_sentence(name))
    return None


def taken_sentence(name: str) -> str:
    return f"{name} is already the name of a module of Python's or of an installed package: give it another name"


def import_problem(entry: Module, module: Module) -> Problem | None:
    """A relative import that leaves the packages inside the entry's folder. One inside a block is ignored: it may be
    only a first try, or meant for another setup.
    """
    package = _below(_parent(entry.name), module.name if module.is_package else _parent(module.name))
    if package is None:
        return None
    depth = len(package.split(".")) if package else 0
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom) and node.level > depth:
            message = f"`{ast.unparse(node)}` cannot work: the folder is not a package; write `{_absolute(node)}`"
            return Problem("NotImportable", module.file, node.lineno, message)
    return None


def _absolute(node: ast.ImportFrom) -> str:
    return ast.unparse(ast.ImportFrom(node.module, node.names, 0) if node.module else ast.Import(node.names))


def _below(root: str, name: str) -> str | None:
    """A dotted name relative to a folder; None if it is not inside."""
    if not root or name == root:
        return name.removeprefix(root)
    return name.removeprefix(f"{root}.") if name.startswith(f"{root}.") else None


def _parent(name: str) -> str:
    return name.rpartition(".")[0]
