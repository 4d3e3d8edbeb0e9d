"""Expressions -> JSON values, if the source alone defines them: literals, constants, enum members, arithmetic."""

import ast
import math
import operator
from collections.abc import Callable
from typing import Any, Final

from tinker_atropos.environments.discovery.modules import Module, SourceClass
from tinker_atropos.environments.discovery.sources import Constant, Foreign, Sources

UNKNOWN: Final = object()
"""A value that only running the code would reveal."""

MAX_NODES = 10_000
"""Maximum expressions in one value: a few constants that repeat each other can expand to billions."""

LARGEST = 2**63
"""Integers that Kubernetes and most JSON parsers accept are smaller."""

_ARITHMETIC: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_EMPTY: Final[dict[str, Any]] = {"list": [], "dict": {}, "set": [], "tuple": [], "frozenset": [], "str": ""}
_ENUM_BASES: Final = {"Enum", "IntEnum", "StrEnum"}
_OWN_VALUES: Final = ("__new__", "__init__", "_missing_", "_generate_next_value_")
"""Methods with which an enum can produce values other than those in the source."""


def literal(sources: Sources, module: Module, expression: ast.expr | None) -> object:
    """The value as JSON (tuples and sets become lists), else UNKNOWN."""
    try:
        return _Evaluation(sources).value(module, expression)
    except RecursionError:
        return UNKNOWN


def empty_value(factory: str) -> object:
    """What a builtin such as `list` returns when called without arguments; UNKNOWN for others."""
    return _EMPTY.get(factory, UNKNOWN)


def is_enum(sources: Sources, source_class: SourceClass) -> bool:
    ancestors = sources.ancestry(source_class)[1:]
    return any(isinstance(each, Foreign) and each.name in _ENUM_BASES for each in ancestors)


def enum_values(sources: Sources, enum: SourceClass) -> list[object] | None:
    """The values of all members. None if only running the code would reveal one of them, or if one is null."""
    if any(enum.method(name) for name in _OWN_VALUES):
        return None
    names = [name for name, _ in enum.attributes if not name.startswith("_")]
    values = [literal(sources, enum.module, enum.attribute(name)) for name in names]
    if not values or not all(isinstance(value, str | int | float) for value in values):
        return None
    return [value for index, value in enumerate(values) if value not in values[:index]]


class _Evaluation:
    """One expression, within its budget."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._left = MAX_NODES

    def value(self, module: Module, node: ast.expr | None) -> Any:
        self._left -= 1
        if self._left < 0:
            return UNKNOWN
        match node:
            case ast.Constant(value=value):
                return _json_scalar(value)
            case ast.Name() | ast.Attribute():
                return self._named(module, node)
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                values = [self.value(module, element) for element in elements]
                return UNKNOWN if any(value is UNKNOWN for value in values) else values
            case ast.Dict(keys=keys, values=values):
                return self._mapping(module, keys, values)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _calculated(ast.Sub(), 0, self.value(module, operand))
            case ast.BinOp(left=left, op=op, right=right):
                return _calculated(op, self.value(module, left), self.value(module, right))
            case ast.Call(func=ast.Name(id=name), args=[], keywords=[]):
                return empty_value(name)
        return UNKNOWN

    def _mapping(self, module: Module, keys: list[ast.expr | None], values: list[ast.expr]) -> object:
        pairs = [(self.value(module, key), self.value(module, value)) for key, value in zip(keys, values, strict=True)]
        if any(not isinstance(key, str) or value is UNKNOWN for key, value in pairs):
            return UNKNOWN
        return dict(pairs)

    def _named(self, module: Module, node: ast.Name | ast.Attribute) -> object:
        meaning = (
            self._sources.lookup(module, node.id) if isinstance(node, ast.Name) else self._sources.resolve(module, node)
        )
        if isinstance(meaning, Constant):
            return self.value(meaning.module, meaning.expression)
        return self._member(module, node) if isinstance(node, ast.Attribute) else UNKNOWN

    def _member(self, module: Module, node: ast.Attribute) -> object:
        """`Color.RED` and `Color.RED.value`: the member's value, which is how JSON represents an enum."""
        member = node.value if node.attr == "value" and isinstance(node.value, ast.Attribute) else node
        owner = self._sources.resolve(module, member.value) if isinstance(member, ast.Attribute) else None
        if not isinstance(owner, SourceClass) or not isinstance(member, ast.Attribute):
            return UNKNOWN
        if any(owner.method(name) for name in _OWN_VALUES):
            return UNKNOWN
        return self.value(owner.module, owner.attribute(member.attr))


def _calculated(op: ast.operator, left: Any, right: Any) -> Any:
    """Arithmetic on numbers: `1024 * 16`. Powers only of small numbers."""
    if not (_is_number(left) and _is_number(right)):
        return UNKNOWN
    if isinstance(op, ast.Pow) and (abs(left) > 1024 or abs(right) > 64):
        return UNKNOWN
    try:
        return _json_scalar(_ARITHMETIC[type(op)](left, right))
    except (KeyError, ArithmeticError):
        return UNKNOWN


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _json_scalar(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else UNKNOWN
    if isinstance(value, int):
        return value if -LARGEST <= value < LARGEST else UNKNOWN
    return value if value is None or isinstance(value, str) else UNKNOWN


def text_of(sources: Sources, module: Module, expression: ast.expr | None) -> str:
    """A string's value, or "" for anything else."""
    value = literal(sources, module, expression)
    return value if isinstance(value, str) else ""
