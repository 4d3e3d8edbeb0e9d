"""Reading Python without running it: classes, their ancestors, their fields and literal values, from syntax alone.

Nothing is imported. What cannot be known without running the code is left out, never guessed.
"""

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

READABLE_PACKAGES = ("tinker_atropos", "atroposlib")
"""Packages whose own files are read when a class is imported from them."""

UNKNOWN = object()
"""A value that only running the code would tell."""


@dataclass(frozen=True)
class Module:
    """One parsed file, under the dotted name by which others may import it."""

    name: str
    path: Path
    tree: ast.Module

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Local name -> (module, name in it). Relative modules lose their dots: they are matched by their end."""
        return {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        """Module-level names with the expression that they were last given."""
        return {
            target.id: node.value
            for node in self.tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }


@dataclass(frozen=True)
class SourceClass:
    """A class, and the module it is written in."""

    module: Module
    node: ast.ClassDef

    @property
    def name(self) -> str:
        return self.node.name

    def attribute(self, name: str) -> ast.expr | None:
        """The expression given to a class attribute."""
        for statement in self.node.body:
            if isinstance(statement, ast.Assign):
                targets, value = statement.targets, statement.value
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                targets, value = [statement.target], statement.value
            else:
                continue
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return value
        return None

    def method(self, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        for statement in self.node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
                return statement
        return None


@dataclass
class Sources:
    """The modules of one folder, and those of the readable packages that they import from."""

    modules: dict[str, Module]
    _packages: dict[str, Module | None] = field(default_factory=dict)

    def ancestry(self, source_class: SourceClass) -> list[SourceClass]:
        """The class and all its ancestors that can be read, nearest first, each once."""
        found: list[SourceClass] = []
        waiting = [source_class]
        while waiting:
            current = waiting.pop(0)
            if current not in found:
                found.append(current)
                bases = (self._resolve(current.module, base) for base in current.node.bases)
                waiting += [base for base in bases if base]
        return found

    def find(self, module: Module, name: str) -> SourceClass | None:
        """The class that a name means in a module."""
        for _ in range(10):  # a chain of re-exports is short; a circle of them must end
            if name in module.classes:
                return SourceClass(module, module.classes[name])
            if name not in module.imports:
                return None
            imported_from, name = module.imports[name]
            origin = self._module(imported_from)
            if origin is None:
                return None
            module = origin
        return None

    def literal(self, module: Module, node: ast.expr | None) -> Any:
        """The value of a literal, of a constant or of an enum member, as JSON has it; else UNKNOWN."""
        if node is None:
            return UNKNOWN
        if isinstance(node, ast.Name):
            return self._constant(module, node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            enum = self.find(module, node.value.id)
            return self.literal(enum.module, enum.attribute(node.attr)) if enum else UNKNOWN
        try:
            return _as_json(ast.literal_eval(node))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return UNKNOWN

    def _constant(self, module: Module, name: str) -> Any:
        if name in module.constants:
            value = module.constants[name]
            return UNKNOWN if isinstance(value, ast.Name) else self.literal(module, value)
        if name in module.imports:
            imported_from, original = module.imports[name]
            origin = self._module(imported_from)
            if origin is not None and original in origin.constants:
                return self.literal(origin, origin.constants[original])
        return UNKNOWN

    def _resolve(self, module: Module, base: ast.expr) -> SourceClass | None:
        """The class behind an expression in a list of bases: `Base`, `Base[Item]`, `module.Base`."""
        if isinstance(base, ast.Subscript):
            base = base.value
        if isinstance(base, ast.Name):
            return self.find(module, base.id)
        if isinstance(base, ast.Attribute):
            origin = self._module(ast.unparse(base.value))
            return self.find(origin, base.attr) if origin else None
        return None

    def _module(self, name: str) -> Module | None:
        """A module of the readable packages, else one of the folder, whose own dotted name is not known for sure."""
        if name not in self._packages:
            self._packages[name] = _read_package_module(name)
        return self._packages[name] or next(
            (module for candidate, module in self.modules.items() if _may_be_the_same(candidate, name)), None
        )


def read_module(name: str, path: Path) -> Module:
    """Parse one file. Raises SyntaxError or ValueError (both say where), OSError when it cannot be read."""
    return Module(name, path, ast.parse(path.read_bytes(), filename=str(path)))


def first_line_of_docstring(node: ast.ClassDef | ast.Module) -> str:
    lines = (ast.get_docstring(node) or "").splitlines()
    return lines[0].strip() if lines else ""


def calls(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call of a plain name inside a node."""
    for child in ast.walk(node):
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name):
            yield child.func.id, child


def _read_package_module(name: str) -> Module | None:
    package, *rest = name.split(".")
    if package not in READABLE_PACKAGES:
        return None
    spec = importlib.util.find_spec(package)  # of a top-level package: finds it and imports nothing
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, *rest)
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                return read_module(name, candidate)
    return None


def _may_be_the_same(candidate: str, imported: str) -> bool:
    """Whether an import may mean a module: `from environments.mine import X` means mine.py of the folder."""
    ends = imported.endswith(f".{candidate}") or candidate.endswith(f".{imported}")
    return bool(imported) and (candidate == imported or ends)


def _as_json(value: Any) -> Any:
    """A literal as JSON has it: tuples and sets become lists. Raises TypeError for what JSON cannot say."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_as_json(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _as_json(each) for key, each in value.items()}
    raise TypeError(f"{value!r} has no JSON form")
