"""What a name refers to: in its module, through imports and re-exports, across a folder's files. Imports nothing.

Classes of the packages in READABLE_PACKAGES are read too, from where those are installed. Anything else is known only
by its name.
"""

import ast
import builtins
import sys
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Self

from tinker_atropos.environments.discovery.modules import (
    HERMES_MODULES,
    READABLE_PACKAGES,
    Import,
    Module,
    SourceClass,
    dotted_name,
    importable_names,
    last_name,
    package_folders,
    package_module,
    python_files,
    without_leading_parts,
)
from tinker_atropos.environments.discovery.source_parser import Problem, UnreadableSourceError, parse_file

MAX_ALIASES = 10
MAX_ANCESTORS = 500


@dataclass(frozen=True, slots=True)
class Constant:
    """A module-level name with the expression assigned to it."""

    module: Module
    expression: ast.expr


@dataclass(frozen=True, slots=True)
class Foreign:
    """Something defined where nothing is read: in another package, or in Python itself."""

    module: str
    name: str


Meaning = SourceClass | Constant | Module | Foreign


class Sources:
    """The Python files of one folder, parsed when first needed.

    `import_root` is the folder (a path below it, "" for itself) that will be on Python's path. If it is not known, an
    import may refer to any file whose path ends like it. `problems` says why each requested file could not be parsed,
    in request order. `files` (relative path -> path) are read instead of all in the folder.
    """

    def __init__(
        self, folder: Path, import_root: str | None = None, *, files: Mapping[str, Path] | None = None
    ) -> None:
        self.paths: dict[str, Path] = dict(python_files(folder) if files is None else files)
        self._import_root = import_root
        self.problems: dict[str, Problem] = {}
        self.missing_packages: set[str] = set()
        self._modules: dict[str, Module | None] = {}
        self._files = importable_names(self.paths, with_ends=import_root is None)
        self._ancestries: dict[SourceClass, list[SourceClass | Foreign]] = {}

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Sources of a single file: what lies beside it is not read."""
        return cls(path.parent, files={path.name: path})

    def module_of_file(self, file: str) -> Module | None:
        """A file of the folder, by its relative path; None if it cannot be parsed."""
        if file not in self._modules:
            path = self.paths[file]
            self._modules[file] = None
            try:
                self._modules[file] = Module(dotted_name(file), file, path.name == "__init__.py", parse_file(path))
            except UnreadableSourceError as error:
                self.problems[file] = error.as_problem(file)
        return self._modules[file]

    def imported(self, module: Module, each: Import) -> Module | None:
        """The module behind `from X import …` or `import X`, as far as it can be read."""
        return self.find_module(absolute_name(module, each), module)

    def find_module(self, name: str, importer: Module) -> Module | None:
        package = name.partition(".")[0]
        if package in READABLE_PACKAGES:
            self.missing_packages |= set() if package_folders(package) else {package}
            return package_module(name)
        file = self.find_file(name, importer)
        if file is None and name in HERMES_MODULES:
            return package_module(name)
        return self.module_of_file(file) if file else None

    def find_file(self, name: str, importer: Module) -> str | None:
        """The file of the folder that a dotted name refers to in an importer, whether or not it can be parsed."""
        if not name or name.partition(".")[0] in {*sys.stdlib_module_names, *READABLE_PACKAGES}:
            return None
        candidates = (name, *self._possible_names(name, importer))
        return next((self._files[each] for each in candidates if each in self._files), None)

    def imported_files(self, module: Module) -> list[str]:
        """The files of the folder that a module imports directly, including a package's `__init__.py`."""
        names: list[str] = []
        for each in module.imported_modules:
            name = absolute_name(module, each)
            parts = [*name.split("."), *([each.name] if each.name else [])]
            names += [".".join(parts[:length]).strip(".") for length in range(1, len(parts) + 1)]
        found = (self.find_file(name, module) for name in dict.fromkeys(names))
        return list(dict.fromkeys(file for file in found if file))

    def _possible_names(self, name: str, importer: Module) -> list[str]:
        """Names below the folder that an absolute name may refer to."""
        if self._import_root is not None:
            return [".".join([*self._import_root.split("/"), name]).strip(".")]
        beside = importer.name.split(".")[: None if importer.is_package else -1]
        return [".".join([*beside, name]), *without_leading_parts(name)]

    def lookup(self, module: Module, name: str) -> Meaning | None:
        """What a name refers to in a module. None: the module does not have it."""
        return self._lookup(module, name, set())

    def resolve(self, module: Module, expression: ast.expr) -> Meaning | None:
        """What `Name`, `package.module.Name` or `Name[Parameter]` refers to. None if it cannot be found."""
        if isinstance(expression, ast.Subscript):
            expression = expression.value
        if isinstance(expression, ast.Name):
            return self._followed(self.lookup(module, expression.id))
        if not isinstance(expression, ast.Attribute):
            return None
        owner = self.resolve(module, expression.value)
        if isinstance(owner, Module):
            return self._followed(self._member(owner, expression.attr, set()))
        if isinstance(owner, Foreign):
            name = f"{owner.module}.{owner.name}".strip(".")
            inside = self.find_module(f"{name}.{expression.attr}", module)
            return inside or Foreign(name, expression.attr)
        return owner.nested(expression.attr) if isinstance(owner, SourceClass) else None

    def ancestry(self, source_class: SourceClass) -> list[SourceClass | Foreign]:
        """The class and all its ancestors, in Python's method resolution order.

        Raises RecursionError if there are more than anyone would write.
        """
        if source_class not in self._ancestries:
            self._ancestries[source_class] = [source_class]  # a class that derives from itself has no other ancestors
            try:
                ancestors = _merged(list(self._lineages(source_class)))
            except RecursionError:
                del self._ancestries[source_class]
                raise
            self._ancestries[source_class] += ancestors
        if len(self._ancestries[source_class]) > MAX_ANCESTORS:
            raise RecursionError(f"{source_class.name} has more than {MAX_ANCESTORS} ancestors")
        return self._ancestries[source_class]

    def readable_ancestry(self, source_class: SourceClass) -> list[SourceClass]:
        return [each for each in self.ancestry(source_class) if isinstance(each, SourceClass)]

    def _lineages(self, source_class: SourceClass) -> Iterator[list[SourceClass | Foreign]]:
        for base in source_class.node.bases:
            meaning = self.resolve(source_class.module, base)
            if isinstance(meaning, SourceClass):
                yield self.ancestry(meaning)
            else:
                yield [meaning if isinstance(meaning, Foreign) else Foreign("", last_name(base))]

    def _lookup(self, module: Module, name: str, seen: set[tuple[Module, str]]) -> Meaning | None:
        if (module, name) in seen:  # a cycle of re-exports
            return None
        seen.add((module, name))
        if name in module.classes:
            return SourceClass(module, module.classes[name])
        found = [self._import_meaning(module, each, seen) for each in module.imports.get(name, ())]
        if found:
            return next((each for each in found if not isinstance(each, Foreign | None)), found[0])
        if name in module.constants:
            return Constant(module, module.constants[name])
        if name in module.defined:
            return None
        return self._through_stars(module, name, seen) or (
            Foreign("builtins", name) if hasattr(builtins, name) else None
        )

    def _import_meaning(self, module: Module, each: Import, seen: set[tuple[Module, str]]) -> Meaning | None:
        origin = self.imported(module, each)
        if each.name is None:
            return origin or Foreign("", each.module)
        if origin is not None:
            return self._member(origin, each.name, seen)
        name = absolute_name(module, each)
        return self.find_module(f"{name}.{each.name}".strip("."), module) or Foreign(name, each.name)

    def _member(self, module: Module, name: str, seen: set[tuple[Module, str]]) -> Meaning | None:
        """What `module.name` refers to: a name that the module defines, or a module of that package."""
        meaning = self._lookup(module, name, seen)
        if meaning is not None and not (isinstance(meaning, Foreign) and meaning.module == "builtins"):
            return meaning
        return self.find_module(f"{module.name}.{name}", module) if module.is_package else None

    def _through_stars(self, module: Module, name: str, seen: set[tuple[Module, str]]) -> Meaning | None:
        unread = None
        for each in module.star_imports:
            origin = self.imported(module, each)
            if origin is None:
                unread = unread or Foreign(absolute_name(module, each), name)
            elif meaning := self._member(origin, name, seen):
                return meaning
        return unread

    def _followed(self, meaning: Meaning | None) -> Meaning | None:
        """A class, if a constant is only another name for it: `Base = GameBase`."""
        for _ in range(MAX_ALIASES):
            if not (isinstance(meaning, Constant) and isinstance(meaning.expression, ast.Name)):
                return meaning
            meaning = self.lookup(meaning.module, meaning.expression.id)
        return None


def absolute_name(module: Module, each: Import) -> str:
    """The dotted name of what is imported. If it climbs above the folder, what follows the dots."""
    if not each.level:
        return each.module
    up = each.level - 1 if module.is_package else each.level
    parts = module.name.split(".")
    return ".".join([*parts[: max(0, len(parts) - up)], each.module]).strip(".")


def _merged(lineages: list[list[SourceClass | Foreign]]) -> list[SourceClass | Foreign]:
    """C3, as in Python: a class comes after all that derive from it, and bases in source order.

    If that is not possible (Python would refuse the class), the first remaining one comes next.
    """
    waiting = [deque(lineage) for lineage in (*lineages, [lineage[0] for lineage in lineages]) if lineage]
    later = Counter(each for lineage in waiting for each in islice(lineage, 1, None))
    merged: dict[SourceClass | Foreign, None] = {}
    while waiting:
        following = next((lineage[0] for lineage in waiting if not later[lineage[0]]), waiting[0][0])
        merged[following] = None
        for lineage in waiting:
            if lineage[0] == following:
                lineage.popleft()
                later.subtract(islice(lineage, 1))
        waiting = [lineage for lineage in waiting if lineage]
    return list(merged)
