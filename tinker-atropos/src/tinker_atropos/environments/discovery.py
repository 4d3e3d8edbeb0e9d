"""Which environments a folder holds, and which fields each of them has: read from source, never imported.

An agent asks this about code it does not trust, so nothing of that code runs. A file that cannot be read becomes a
warning beside the others.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tinker_atropos.environments.source_reading import (
    UNKNOWN,
    Module,
    SourceClass,
    Sources,
    calls,
    first_line_of_docstring,
    read_module,
)

BUNDLED_FOLDER = Path(__file__).parent
BASE_CLASS = "BaseEnv"
EMPTY_DEFAULTS = {"list": [], "dict": {}, "set": [], "str": ""}
"""What a `default_factory` gives, for those whose result is known."""


@dataclass(frozen=True, slots=True)
class ConfigField:
    """One field of an environment's config. `default` is JSON; null also stands for what only running would tell."""

    name: str
    type: str
    default: Any
    description: str


@dataclass(frozen=True, slots=True)
class DiscoveredEnvironment:
    """An environment. `file_path` is relative to the folder that was asked about (or to this package)."""

    name: str
    class_name: str
    file_path: str
    description: str
    fields: list[ConfigField]


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a folder holds, in the order of names, and a sentence for each file that could not be read."""

    environments: list[DiscoveredEnvironment] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)


def discover_bundled() -> Discovery:
    """The environments of this package; their paths are relative to it."""
    return discover(BUNDLED_FOLDER, relative_to=BUNDLED_FOLDER.parent)


def discover(folder: Path, relative_to: Path | None = None) -> Discovery:
    """The environments of a folder and the folders below it. Files and folders whose name starts with `_` or `.` are
    left out, and so are classes that list ABC among their bases: those are for environments to derive from.
    """
    modules, warnings = _read_folder(folder)
    sources = Sources({module.name: module for module in modules})
    found = [
        _describe(sources, ancestry, module.path.relative_to(relative_to or folder))
        for module in modules
        for node in module.classes.values()
        if _is_environment(ancestry := sources.ancestry(SourceClass(module, node)))
    ]
    return Discovery(sorted(found, key=lambda environment: environment.name), warnings)


def _read_folder(folder: Path) -> tuple[list[Module], list[str]]:
    modules, warnings = [], []
    for path in sorted(folder.rglob("*.py")):
        relative = path.relative_to(folder)
        if any(part.startswith(("_", ".")) for part in relative.parts):
            continue
        try:
            modules.append(read_module(".".join(relative.with_suffix("").parts), path))
        except (SyntaxError, ValueError, OSError, RecursionError, MemoryError) as error:
            warnings.append(f"{relative} cannot be read: {error}")
    return modules, warnings


def _is_environment(ancestry: list[SourceClass]) -> bool:
    """Whether a class derives from BaseEnv, at any distance, and is meant to be used and not derived from."""
    own, *ancestors = ancestry
    bases = {_last_name(base) for base in own.node.bases}
    if own.name == BASE_CLASS or "ABC" in bases:
        return False
    inherited = {_last_name(base) for each in ancestry for base in each.node.bases}
    return BASE_CLASS in inherited | {each.name for each in ancestors}


def _last_name(base: ast.expr) -> str:
    """`BaseEnv` of `BaseEnv`, `base.BaseEnv` and `BaseEnv[Item]`."""
    if isinstance(base, ast.Subscript):
        base = base.value
    return base.attr if isinstance(base, ast.Attribute) else base.id if isinstance(base, ast.Name) else ""


def _describe(sources: Sources, ancestry: list[SourceClass], file_path: Path) -> DiscoveredEnvironment:
    own = ancestry[0]
    name = _inherited_literal(sources, ancestry, "name")
    return DiscoveredEnvironment(
        name=name if isinstance(name, str) and name else file_path.stem,
        class_name=own.name,
        file_path=file_path.as_posix(),
        description=first_line_of_docstring(own.node) or first_line_of_docstring(own.module.tree),
        fields=_fields(sources, ancestry),
    )


def _inherited_literal(sources: Sources, ancestry: list[SourceClass], attribute: str) -> Any:
    for each in ancestry:
        if (value := each.attribute(attribute)) is not None:
            return sources.literal(each.module, value)
    return UNKNOWN


def _fields(sources: Sources, ancestry: list[SourceClass]) -> list[ConfigField]:
    """The config's fields, the base's first, with the values that `config_init` gives where they are literals."""
    config_class = _config_class(sources, ancestry)
    if config_class is None:
        return []
    lineage = sources.ancestry(config_class)
    fields: dict[str, ConfigField] = {}
    for each in reversed(lineage):
        for declared in _declared_fields(sources, each):
            inherited = fields.get(declared.name)
            description = declared.description or (inherited.description if inherited else "")
            fields[declared.name] = ConfigField(declared.name, declared.type, declared.default, description)
    for name, value in _config_init_values(sources, ancestry, {each.name for each in lineage}):
        if name in fields and value is not UNKNOWN:
            fields[name] = ConfigField(name, fields[name].type, value, fields[name].description)
    return list(fields.values())


def _config_class(sources: Sources, ancestry: list[SourceClass]) -> SourceClass | None:
    for each in ancestry:
        value = each.attribute("env_config_cls")
        if isinstance(value, ast.Name) and (found := sources.find(each.module, value.id)):
            return found
    return None


def _declared_fields(sources: Sources, config_class: SourceClass) -> Iterator[ConfigField]:
    for statement in config_class.node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name, type_name = statement.target.id, ast.unparse(statement.annotation)
        if not name.startswith("_") and name != "model_config" and not type_name.startswith("ClassVar"):
            default, description = _default_and_description(sources, config_class.module, statement.value)
            yield ConfigField(name, type_name, default, description)


def _default_and_description(sources: Sources, module: Module, value: ast.expr | None) -> tuple[Any, str]:
    if not (isinstance(value, ast.Call) and _last_name(value.func) == "Field"):
        return _known(sources.literal(module, value)), ""
    keywords = {keyword.arg: keyword.value for keyword in value.keywords}
    description = sources.literal(module, keywords.get("description"))
    default = keywords.get("default", value.args[0] if value.args else None)
    factory = keywords.get("default_factory")
    if default is None and isinstance(factory, ast.Name):
        return EMPTY_DEFAULTS.get(factory.id), description if isinstance(description, str) else ""
    return _known(sources.literal(module, default)), description if isinstance(description, str) else ""


def _known(value: Any) -> Any:
    return None if value is UNKNOWN or value is ... else value


def _config_init_values(
    sources: Sources, ancestry: list[SourceClass], config_names: set[str]
) -> Iterable[tuple[str, Any]]:
    """The literal arguments with which the nearest `config_init` builds the config."""
    for each in ancestry:
        method = each.method("config_init")
        for name, call in calls(method) if method else ():
            if name in config_names:
                return [(k.arg, sources.literal(each.module, k.value)) for k in call.keywords if k.arg]
    return []
