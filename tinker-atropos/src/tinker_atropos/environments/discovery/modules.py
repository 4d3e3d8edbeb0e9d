"""The Python files of a folder, the dotted names by which they may be imported, and what a parsed one defines: classes,
constants, and the names that it imports. Also the installed packages whose classes environments derive from: their
files are read, and never imported.
"""

import ast
import importlib.util
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from tinker_atropos.environments.discovery.source_parser import UnreadableSourceError, parse_file

_NOTED: Final = (ast.Import, ast.ImportFrom, ast.Call)


@dataclass(frozen=True, slots=True)
class Import:
    """`from ..module import name` has level 2; `import module` has no name."""

    module: str
    level: int
    name: str | None


@dataclass(frozen=True, eq=False)
class Module:
    """One parsed file. `name` is dotted: relative to the searched folder, or of an installed package."""

    name: str
    file: str
    is_package: bool
    tree: ast.Module

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        return {each.name: each for each in self._statements if isinstance(each, ast.ClassDef)}

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        """Names that are assigned once. If one is set twice, only running the code would tell its value."""
        bound = [(name, value) for each in self._statements for name, value in _bindings(each)]
        times = Counter(name for name, _ in bound)
        return {name: value for name, value in bound if value is not None and times[name] == 1}

    @cached_property
    def defined(self) -> frozenset[str]:
        """Names that a statement of the module binds to anything."""
        functions = (each.name for each in self._statements if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
        bound = (name for each in self._statements for name, _ in _bindings(each))
        return frozenset((*functions, *bound, *self.classes, *self.imports))

    @cached_property
    def imports(self) -> dict[str, list[Import]]:
        """Local name -> what it may refer to: more than one if a `try` has a fallback."""
        found: dict[str, list[Import]] = {}
        for local, each in self._imported:
            found.setdefault(local, []).append(each)
        return found

    @cached_property
    def star_imports(self) -> list[Import]:
        return [each for local, each in self._imported if local == "*"]

    @cached_property
    def imported_modules(self) -> list[Import]:
        """Every module that the file may import, anywhere in it, in line order."""
        whole = (
            Import(alias.name, 0, None)
            for node in self._import_nodes
            if isinstance(node, ast.Import)
            for alias in node.names
        )
        return [*whole, *(each for _, each in self._imported if each.name is not None)]

    @cached_property
    def _imported(self) -> list[tuple[str, Import]]:
        return [pair for node in self._import_nodes for pair in _names_of(node)]

    @property
    def _import_nodes(self) -> list[ast.Import | ast.ImportFrom]:
        return [node for node in self._noted if isinstance(node, ast.Import | ast.ImportFrom)]

    @cached_property
    def started(self) -> list[str]:
        """`MyEnv` in `MyEnv.cli()`, which is how atroposlib's files end."""
        functions = (node.func for node in self._noted if isinstance(node, ast.Call))
        return [
            each.value.id
            for each in functions
            if isinstance(each, ast.Attribute) and each.attr == "cli" and isinstance(each.value, ast.Name)
        ]

    @cached_property
    def _noted(self) -> list[ast.AST]:
        """The nodes that are needed from any depth, from a single walk over the tree, which is the slow part."""
        return [node for node in ast.walk(self.tree) if isinstance(node, _NOTED)]

    @cached_property
    def _statements(self) -> list[ast.stmt]:
        """Statements of the module, including those in `if`, `try` and `with`, but not what only `python FILE` runs."""
        found, waiting = [], list(reversed(self.tree.body))
        while waiting:
            statement = waiting.pop()
            found.append(statement)
            waiting += reversed(_inner_statements(statement))
        return found


@dataclass(frozen=True, slots=True)
class SourceClass:
    """A class, and the module it is written in."""

    module: Module
    node: ast.ClassDef

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def attributes(self) -> list[tuple[str, ast.expr | None]]:
        """What the class body binds, in order; without an expression if it is not a plain assignment."""
        return [binding for statement in self.node.body for binding in _bindings(statement)]

    def attribute(self, name: str) -> ast.expr | None:
        given = [value for bound, value in self.attributes if bound == name]
        return given[-1] if given else None

    def method(self, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        for statement in self.node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
                return statement
        return None

    def nested(self, name: str) -> "SourceClass | None":
        inside = (each for each in self.node.body if isinstance(each, ast.ClassDef) and each.name == name)
        return next((SourceClass(self.module, each) for each in inside), None)


def last_name(node: ast.expr) -> str:
    """`BaseEnv` of `BaseEnv`, `base.BaseEnv` and `BaseEnv[Item]`."""
    if isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _bindings(statement: ast.stmt) -> Iterator[tuple[str, ast.expr | None]]:
    """(name, expression) of each plain name that a statement binds; None if it is not a plain assignment."""
    match statement:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, value
                else:
                    names = (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
                    yield from ((name, None) for name in names)
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.AugAssign(target=ast.Name(id=name)) | ast.For(target=ast.Name(id=name)):
            yield name, None


def _inner_statements(statement: ast.stmt) -> list[ast.stmt]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or _is_program_only(statement):
        return []
    handlers = [each for handler in getattr(statement, "handlers", ()) for each in handler.body]
    blocks = (getattr(statement, part, []) for part in ("body", "orelse", "finalbody"))
    return [*(each for block in blocks for each in block), *handlers]


def _is_program_only(statement: ast.stmt) -> bool:
    """`if __name__ == "__main__":`"""
    return isinstance(statement, ast.If) and any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
    )


def _names_of(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Import]]:
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, Import(node.module or "", node.level, alias.name)
        elif alias.asname:
            yield alias.asname, Import(alias.name, 0, None)
        else:
            root = alias.name.partition(".")[0]
            yield root, Import(root, 0, None)


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
