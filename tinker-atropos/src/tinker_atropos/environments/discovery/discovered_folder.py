"""Which environments a folder contains, and which fields each of them has: read from source, never imported.

Agents use this for code they do not trust, so none of that code runs. A file that cannot be read becomes a warning;
the others are still listed.

"""

import ast
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path

from tinker_atropos.environments.discovery.config_fields import (
    ConfigField,
    GivenValues,
    fields_of,
    values_of_config_init,
)
from tinker_atropos.environments.discovery.environment_classes import (
    declared_config_class,
    draws_items,
    entry_problem,
    files_imported,
    own_environments,
    served_environments,
)
from tinker_atropos.environments.discovery.modules import SourceClass
from tinker_atropos.environments.discovery.source_parser import Problem
from tinker_atropos.environments.discovery.sources import Sources
from tinker_atropos.environments.discovery.values import UNKNOWN, literal

BUNDLED_FOLDER = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class DiscoveredEnvironment:
    """An environment. `file_path` is relative to the searched folder (or to this package). One of a family has the
    family's fields, too: its own come after them. `draws_items`: in no order that a run could keep.
    """

    name: str
    class_name: str
    file_path: str
    description: str
    fields: list[ConfigField]
    family: str | None = None
    draws_items: bool = False

    def to_wire(self) -> dict[str, object]:
        plain = {name: getattr(self, name) for name in ("name", "class_name", "file_path", "description")}
        family = {"family": self.family} if self.family else {}
        draws = {"draws_items": True} if self.draws_items else {}
        return plain | family | draws | {"fields": [each.to_wire() for each in self.fields]}


@dataclass(frozen=True, slots=True)
class DiscoveredFamily:
    """Environments that share most of their fields: those are told once."""

    name: str
    description: str
    fields: list[ConfigField]

    def to_wire(self) -> dict[str, object]:
        fields = [each.to_wire() for each in self.fields]
        return {"name": self.name, "description": self.description, "fields": fields}


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a folder contains, sorted by name, and a sentence for each file that could not be read.

    `problem` and `modules` belong to one entry file: why it cannot be served, and which files of the folder it imports,
    itself first.
    """

    environments: list[DiscoveredEnvironment] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problem: Problem | None = None
    modules: list[str] = field(default_factory=list)
    families: list[DiscoveredFamily] = field(default_factory=list)

    def to_wire(self) -> dict[str, object]:
        families = {"families": [each.to_wire() for each in self.families]} if self.families else {}
        return families | {
            "environments": [each.to_wire() for each in self.environments],
            "warnings": self.warnings,
            "problem": asdict(self.problem) if self.problem else None,
            "modules": self.modules,
        }


@cache
def discover_bundled() -> Discovery:
    """The environments of this package; their paths are relative to it. Read once, as it takes half a second."""
    return discover(BUNDLED_FOLDER, relative_to=BUNDLED_FOLDER.parent)


def discover(folder: Path, relative_to: Path | None = None) -> Discovery:
    """The environments of a folder and its subfolders. Files and folders whose name starts with `_` or `.` are skipped,
    and so are base classes.
    """
    sources = Sources(folder)
    found: list[DiscoveredEnvironment] = []
    too_deep: list[str] = []
    for file, path in sources.paths.items():
        if any(part.startswith("_") for part in file.split("/")):
            continue
        shown = path.relative_to(relative_to or folder).as_posix()
        try:
            module = sources.module_of_file(file)
            found += [_describe(sources, each, shown) for each in own_environments(sources, module)] if module else []
        except RecursionError:
            too_deep.append(f"{file} cannot be read: its classes are nested too deeply")
    unread = [
        f"{each.file} cannot be read{f' (line {each.line})' if each.line else ''}: {each.message}"
        for each in sources.problems.values()
    ]
    warnings = [*unread, *too_deep, *_missing_packages(sources)]
    return Discovery(sorted(found, key=lambda environment: environment.name), warnings)


def discover_entry(folder: Path, entry: str) -> Discovery:
    """The one environment of a file, by its path below the folder, checked as the runner will check it."""
    sources = Sources(folder, import_root=entry.rpartition("/")[0])
    try:
        return _discover_entry(sources, entry)
    except RecursionError:
        problem = Problem("Unreadable", entry, None, "its classes or expressions are nested too deeply to be read")
        return Discovery(problem=problem)


def _discover_entry(sources: Sources, entry: str) -> Discovery:
    if entry not in sources.paths:
        there = f"there is {', '.join(sources.paths)}" if sources.paths else "there is no Python file"
        return Discovery(problem=Problem("NoEnvironment", entry, None, f"there is no such file ({there})"))
    module = sources.module_of_file(entry)
    if module is None:
        return Discovery(problem=sources.problems[entry], modules=[entry])
    files = files_imported(sources, module)
    problem = entry_problem(sources, module, files)
    served = served_environments(sources, module) if problem is None else []
    environments = [_describe(sources, each, entry) for each in served]
    return Discovery(environments, _missing_packages(sources), problem, files)


def _describe(sources: Sources, environment: SourceClass, file_path: str) -> DiscoveredEnvironment:
    ancestry = sources.readable_ancestry(environment)
    name = _inherited_literal(sources, ancestry, "name")
    return DiscoveredEnvironment(
        name=name if isinstance(name, str) and name else Path(file_path).stem,
        class_name=environment.name,
        file_path=file_path,
        description=_first_line(environment.node) or _first_line(environment.module.tree),
        fields=_fields(sources, ancestry),
        draws_items=draws_items(ancestry),
    )


def _inherited_literal(sources: Sources, ancestry: list[SourceClass], attribute: str) -> object:
    for each in ancestry:
        if (value := each.attribute(attribute)) is not None:
            return literal(sources, each.module, value)
    return UNKNOWN


def _fields(sources: Sources, ancestry: list[SourceClass]) -> list[ConfigField]:
    """The config's fields with the values from `config_init`, which apply unless the user sets others."""
    given = values_of_config_init(sources, ancestry)
    config_class = given.config_class or declared_config_class(sources, ancestry)
    if config_class is None:
        return []
    return [_as_given(each, given) for each in fields_of(sources, config_class).values()]


def _as_given(declared: ConfigField, given: GivenValues) -> ConfigField:
    if declared.name in given.values:
        value = given.values[declared.name]
        return replace(declared, default=None if value is UNKNOWN else value)
    return declared if given.complete else replace(declared, default=None)


def _missing_packages(sources: Sources) -> list[str]:
    return [
        f"{package} is not installed here: what its classes say is not known"
        for package in sorted(sources.missing_packages)
    ]


def _first_line(node: ast.ClassDef | ast.Module) -> str:
    lines = (ast.get_docstring(node) or "").strip().splitlines()
    return lines[0].strip() if lines else ""
