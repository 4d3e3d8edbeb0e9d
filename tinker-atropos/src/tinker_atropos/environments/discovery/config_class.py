"""Which config class an environment has, and whether it is valid."""

import ast

from tinker_atropos.environments.discovery.kinship import BASE_CONFIG, may_derive_from_config
from tinker_atropos.environments.discovery.modules import Module, SourceClass
from tinker_atropos.environments.discovery.source_parser import Problem
from tinker_atropos.environments.discovery.sources import Constant, Foreign, Meaning, Sources

ATTRIBUTE = "env_config_cls"


def declared_config_class(sources: Sources, ancestry: list[SourceClass]) -> SourceClass | None:
    """The class that the nearest `env_config_cls` names; None if it cannot be read."""
    for owner in ancestry:
        if (expression := owner.attribute(ATTRIBUTE)) is not None:
            meaning = _meaning(sources, owner, expression)
            return meaning if isinstance(meaning, SourceClass) else None
    return None


def config_class_problem(sources: Sources, ancestry: list[SourceClass]) -> Problem | None:
    """A problem if the nearest `env_config_cls` is definitely not a config class. What cannot be read passes."""
    for owner in ancestry:
        if (expression := owner.attribute(ATTRIBUTE)) is not None:
            fault = _fault(sources, owner, expression)
            where = f"{owner.name}.{ATTRIBUTE} is {ast.unparse(expression)}"
            message = f"{where}, {fault}: name a class derived from {BASE_CONFIG}"
            return Problem("WrongConfigClass", owner.module.file, expression.lineno, message) if fault else None
    return None


def _meaning(sources: Sources, owner: SourceClass, expression: ast.expr) -> Meaning | None:
    nested = owner.nested(expression.id) if isinstance(expression, ast.Name) else None
    return nested or sources.resolve(owner.module, expression)


def _fault(sources: Sources, owner: SourceClass, expression: ast.expr) -> str:
    no_config = f"which is not derived from {BASE_CONFIG}"
    match _meaning(sources, owner, expression):
        case SourceClass() as found:
            return "" if may_derive_from_config(sources, found) else no_config
        case Foreign(module="builtins") | Module():
            return no_config
        case Constant(expression=value):
            return no_config if isinstance(value, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.Set) else ""
        case None if isinstance(expression, ast.Constant):
            return no_config
        case None if isinstance(expression, ast.Name) and not _is_bound(sources, owner, expression.id):
            return "which is not defined"
    return ""


def _is_bound(sources: Sources, owner: SourceClass, name: str) -> bool:
    """Whether a name is bound in a class body or its module, or imported from a module that is not read."""
    if any(name == bound for bound, _ in owner.attributes):
        return True
    imports = owner.module.imports.get(name)
    if imports is None:
        return name in owner.module.defined
    origins = ((each, sources.imported(owner.module, each)) for each in imports)
    return any(
        origin is None or each.name is None or each.name in origin.defined or bool(origin.star_imports)
        for each, origin in origins
    )
