"""The fields of a config class, ancestors' fields first, as pydantic collects them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from inspect import cleandoc
from itertools import zip_longest
from typing import Any

from tinker_atropos.environments.discovery.annotations import Limits, limits_of, read_annotation
from tinker_atropos.environments.discovery.modules import Module, SourceClass, last_name
from tinker_atropos.environments.discovery.sources import Sources
from tinker_atropos.environments.discovery.values import UNKNOWN, empty_value, literal, text_of


@dataclass(frozen=True, slots=True)
class ConfigField:
    """One field of an environment's config. `default` is JSON; null if only running the code would tell."""

    name: str
    type: str
    default: Any
    description: str
    limits: Limits
    choices: list[Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """Without the limits and choices that it does not have."""
        wire = {"name": self.name, "type": self.type, "default": self.default, "description": self.description}
        return wire | self.limits | ({} if self.choices is None else {"choices": self.choices})


def fields_of(sources: Sources, config_class: SourceClass) -> dict[str, ConfigField]:
    """Fields by name. A redefined field keeps its position and, unless it has a new one, its description."""
    fields: dict[str, ConfigField] = {}
    for each in reversed(sources.readable_ancestry(config_class)):
        for declared in _declared_fields(sources, each):
            inherited = fields.get(declared.name)
            description = declared.description or (inherited.description if inherited else "")
            fields[declared.name] = replace(declared, description=description)
    return fields


def _declared_fields(sources: Sources, config_class: SourceClass) -> Iterator[ConfigField]:
    local_names = {name for name, _ in config_class.attributes}
    body = config_class.node.body
    for statement, following in zip_longest(body, body[1:]):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name = statement.target.id
        if name.startswith("_") or name == "model_config" or _is_class_variable(statement.annotation):
            continue
        field = _field(sources, config_class.module, statement, local_names)
        yield field if field.description else replace(field, description=_docstring(following))


def _docstring(statement: ast.stmt | None) -> str:
    """The first paragraph of a text that stands on the line after a field, as some libraries describe theirs."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        text = statement.value.value
        return " ".join(cleandoc(text).partition("\n\n")[0].split()) if isinstance(text, str) else ""
    return ""


def _is_class_variable(annotation: ast.expr) -> bool:
    if isinstance(annotation, ast.Constant):
        return str(annotation.value).startswith(("ClassVar", "typing.ClassVar"))
    return last_name(annotation) == "ClassVar"


def _field(sources: Sources, module: Module, statement: ast.AnnAssign, local_names: set[str]) -> ConfigField:
    assert isinstance(statement.target, ast.Name)
    annotation = read_annotation(sources, module, statement.annotation)
    calls = [*annotation.fields]
    value = statement.value
    if isinstance(value, ast.Call) and last_name(value.func) in ("Field", "field"):  # pydantic's, a dataclass's
        calls.append((module, value))
        value = None
    default = _default(sources, module, value, calls)
    if value is not None and _mentions(value, local_names):
        default = None  # a name of the class body, which is not followed here
    descriptions = [
        text_of(sources, where, keyword.value)
        for where, call in calls
        for keyword in call.keywords
        if keyword.arg == "description"
    ]
    limits = annotation.limits | {key: v for where, call in calls for key, v in limits_of(sources, where, call).items()}
    name, description = statement.target.id, descriptions[-1] if descriptions else ""
    return ConfigField(name, annotation.type, default, description, limits, annotation.choices)


def _default(sources: Sources, module: Module, value: ast.expr | None, calls: list[tuple[Module, ast.Call]]) -> Any:
    if value is not None:
        return _known(literal(sources, module, value))
    for where, call in reversed(calls):
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        given = keywords.get("default", call.args[0] if call.args else None)
        if given is not None:
            return _known(literal(sources, where, given))
        if "default_factory" in keywords:
            return _known(_made(sources, where, keywords["default_factory"]))
    return None


def _made(sources: Sources, module: Module, factory: ast.expr) -> Any:
    """What `list` or `lambda: [1, 2]` returns."""
    if isinstance(factory, ast.Name):
        return empty_value(factory.id)
    if isinstance(factory, ast.Lambda):
        return literal(sources, module, factory.body)
    return UNKNOWN


def _mentions(expression: ast.expr, names: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(expression))


def _known(value: Any) -> Any:
    return None if value is UNKNOWN else value
