"""How an environment's files are imported, and what cannot be: as `python FILE` would, with the entry's folder first on
Python's path; or as `python -m package.file` would, if that folder is a package and the entry imports relatively.
"""

import ast
import sys
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tinker_atropos.environments.discovery.modules import READABLE_PACKAGES, Module, dotted_name
from tinker_atropos.environments.discovery.source_parser import Problem

TAKEN_NAMES: Final = frozenset({*sys.stdlib_module_names, *READABLE_PACKAGES, "wandb"})
"""Modules that exist before any file of an environment: one of the same name could not be imported, or would shadow
them for other modules. Only the runner knows what else is installed, and refuses those names too.
"""


@dataclass(frozen=True, slots=True)
class ImportRoot:
    """A folder (dotted, "" for the searched one) that is on Python's path or, if `is_package`, is the top package."""

    folder: str
    is_package: bool


def imports_relatively(module: Module) -> bool:
    return any(each.level for each in module.imported_modules)


def import_root(entry: Module, files: Container[str]) -> ImportRoot:
    """`files` are those of the searched folder, by relative path. The top package is the uppermost of the folders above
    each other that have an `__init__.py`. Above the searched folder, which may be a copy, nothing is known.
    """
    folder = _parent(entry.name)
    if entry.is_package or init_file(folder) not in files or not imports_relatively(entry):
        return ImportRoot(folder, is_package=False)
    while folder and init_file(_parent(folder)) in files:
        folder = _parent(folder)
    return ImportRoot(folder, is_package=True)


def init_file(folder: str) -> str:
    """The `__init__.py` of a dotted folder."""
    return "/".join([*filter(None, folder.split(".")), "__init__.py"])


def init_files(entry: Module, root: ImportRoot) -> list[str]:
    """What is run before the entry: the `__init__.py` of each package that it is in, top first."""
    parts = _parent(entry.name).split(".") if _parent(entry.name) else []
    above = len(root.folder.split(".")) if root.folder else 0
    return [init_file(".".join(parts[:length])) for length in range(above, len(parts) + 1)] if root.is_package else []


def name_problem(entry: Module, files: Mapping[str, Path], root: ImportRoot) -> Problem | None:
    """A taken name: of the package, or of a file or package in the folder that is on Python's path."""
    if root.is_package:
        name = files[init_file(root.folder)].absolute().parent.name
        message = f"its folder is a package, and {taken_sentence(name)}"
        return Problem("NotImportable", entry.file, None, message) if name in TAKEN_NAMES else None
    for file in files:
        below = _below(root.folder, dotted_name(file))
        if below in TAKEN_NAMES:
            return Problem("NotImportable", file, None, taken_sentence(below))
    return None


def taken_sentence(name: str) -> str:
    return f"{name} is already the name of a module of Python's or of an installed package: give it another name"


def import_problem(root: ImportRoot, module: Module) -> Problem | None:
    """A relative import that leaves all packages. One inside a block is ignored: it may be only a first try, or meant
    for another setup.
    """
    package = _below(root.folder, module.name if module.is_package else _parent(module.name))
    if package is None:
        return None
    depth = (len(package.split(".")) if package else 0) + root.is_package
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom) and node.level > depth:
            return Problem("NotImportable", module.file, node.lineno, _leaves(node, root))
    return None


def _leaves(node: ast.ImportFrom, root: ImportRoot) -> str:
    why = (
        "it climbs above the package that the environment is in, or out of the folder that is read: import only from "
        "inside of it"
        if root.is_package
        else f"the environment's folder is not imported as a package; write `{_absolute(node)}`"
    )
    return f"`{ast.unparse(node)}` cannot work: {why}"


def _absolute(node: ast.ImportFrom) -> str:
    return ast.unparse(ast.ImportFrom(node.module, node.names, 0) if node.module else ast.Import(node.names))


def _below(root: str, name: str) -> str | None:
    """A dotted name relative to a folder; None if it is not inside."""
    if not root or name == root:
        return name.removeprefix(root)
    return name.removeprefix(f"{root}.") if name.startswith(f"{root}.") else None


def _parent(name: str) -> str:
    return name.rpartition(".")[0]
