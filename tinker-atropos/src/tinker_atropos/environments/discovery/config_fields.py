"""The fields of a config class, ancestors' fields first, as pydantic collects them; and what an environment's
`config_init` returns: which config class, and which values.

It returns `(config, servers)`. Supported are `return Config(a=1), …`, `config = Config(a=1)` with one such line, and
`super().config_init()`. Only running the code would tell about anything else, which is unknown: nothing is guessed.
"""

import ast
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from inspect import cleandoc
from itertools import zip_longest
from typing import Any

from tinker_atropos.environments.discovery.annotations import Limits, limits_of, read_annotation
from tinker_atropos.environments.discovery.environment_classes import derives_from_config
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

    def to_wire(self) -> dict[str, object]:
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


def _default(sources: Sources, module: Module, value: ast.expr | None, calls: list[tuple[Module, ast.Call]]) -> object:
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


def _made(sources: Sources, module: Module, factory: ast.expr) -> object:
    """What `list` or `lambda: [1, 2]` returns."""
    if isinstance(factory, ast.Name):
        return empty_value(factory.id)
    if isinstance(factory, ast.Lambda):
        return literal(sources, module, factory.body)
    return UNKNOWN


def _mentions(expression: ast.expr, names: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(expression))


def _known(value: object) -> object:
    return None if value is UNKNOWN else value


Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class GivenValues:
    """`config_class` is None if it is the environment's `env_config_cls`. `complete`: other fields keep the class's
    defaults; otherwise they are unknown.
    """

    config_class: SourceClass | None = None
    values: dict[str, Any] = field(default_factory=dict)
    complete: bool = True


_ANYTHING = GivenValues(complete=False)


def values_of_config_init(sources: Sources, ancestry: Sequence[SourceClass]) -> GivenValues:
    """From the nearest `config_init` in the environment's ancestry, starting with itself."""
    for index, each in enumerate(ancestry):
        method = each.method("config_init")
        if method is not None:
            return _read(sources, each.module, method, ancestry[index + 1 :])
    return GivenValues()


def _read(sources: Sources, module: Module, method: Function, ancestors: Sequence[SourceClass]) -> GivenValues:
    returned = [node.value for node in _own_nodes(method) if isinstance(node, ast.Return)]
    if len(returned) != 1 or not isinstance(returned[0], ast.Tuple) or not returned[0].elts:
        is_inherited = len(returned) == 1 and _calls_super(returned[0])
        return values_of_config_init(sources, ancestors) if is_inherited else _ANYTHING
    config = returned[0].elts[0]
    if not isinstance(config, ast.Name):
        return _from_expression(sources, module, config)
    return _from_variable(sources, module, method, config.id, ancestors)


def _from_variable(
    sources: Sources, module: Module, method: Function, name: str, ancestors: Sequence[SourceClass]
) -> GivenValues:
    nodes = list(_own_nodes(method))
    assigned = list(_assignments(nodes, name))
    reads = [
        node for node in nodes if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
    parts = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    of_config = [node for node in parts if node.value in reads]
    if len(assigned) != 1 or len(reads) != len(of_config) + 1:  # one read is the return; others may change the config
        return _ANYTHING
    if isinstance(assigned[0], _Unpacked):
        given = values_of_config_init(sources, ancestors) if _calls_super(assigned[0].value) else _ANYTHING
    else:
        given = _from_expression(sources, module, assigned[0])
    called = {node.func for node in nodes if isinstance(node, ast.Call)}
    if any(node in called for node in of_config):  # a method call on the config
        return GivenValues(given.config_class, complete=False)
    changed = {node.attr: UNKNOWN for node in of_config if not isinstance(node.ctx, ast.Load)}
    return GivenValues(given.config_class, given.values | changed, given.complete)


def _from_expression(sources: Sources, module: Module, expression: ast.expr | None) -> GivenValues:
    """`Config(a=1, **more)`, or `cls.env_config_cls(a=1)`."""
    if not isinstance(expression, ast.Call) or expression.args:
        return _ANYTHING
    function = expression.func
    config_class = sources.resolve(module, function)
    if not isinstance(config_class, SourceClass):
        if not (isinstance(function, ast.Attribute) and function.attr == "env_config_cls"):
            return _ANYTHING
        config_class = None
    elif not derives_from_config(sources, config_class):
        return _ANYTHING
    values: dict[str, object] = {}
    complete = True
    for keyword in expression.keywords:
        value = literal(sources, module, keyword.value)
        if keyword.arg is not None:
            values[keyword.arg] = value
        elif isinstance(value, dict):
            values |= value
        else:
            complete = False
    return GivenValues(config_class, values, complete)


@dataclass(frozen=True, slots=True)
class _Unpacked:
    """`config, servers = value`."""

    value: ast.expr


def _assignments(nodes: Iterable[ast.AST], name: str) -> Iterator[ast.expr | _Unpacked | None]:
    """What is assigned to a local name; None if it is not a plain assignment."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                yield value
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                yield value
            case ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=target), *_])], value=value) if target == name:
                yield _Unpacked(value)


def _calls_super(expression: ast.expr | None) -> bool:
    match expression:
        case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="config_init")):
            return True
    return False


def _own_nodes(method: Function) -> Iterator[ast.AST]:
    """The nodes of a function's body, without those of nested functions and classes."""
    waiting: deque[ast.AST] = deque(method.body)
    while waiting:
        node = waiting.popleft()
        yield node
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
