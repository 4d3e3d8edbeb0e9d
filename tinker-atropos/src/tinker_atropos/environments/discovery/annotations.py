"""A field's annotation: its type as text, the limits in it or in `Field(...)`, and the choices of an enum.

Only what applies to the value itself is kept: limits on a list's elements, or on one side of a union, are left out.
"""

import ast
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from tinker_atropos.environments.discovery.modules import Module, SourceClass, last_name
from tinker_atropos.environments.discovery.source_parser import UnreadableSourceError, parse
from tinker_atropos.environments.discovery.sources import Constant, Foreign, Sources
from tinker_atropos.environments.discovery.values import UNKNOWN, enum_values, is_enum, literal

Limits = dict[str, Any]

MAX_NODES: Final = 500
"""Maximum nodes of one annotation with aliases replaced: a longer one would not help the user."""

_BY_KEYWORD: Final = {
    "ge": "minimum",
    "gt": "exclusive_minimum",
    "le": "maximum",
    "lt": "exclusive_maximum",
    "min_length": "min_length",
    "max_length": "max_length",
    "pattern": "pattern",
    "regex": "pattern",
}
_BY_POSITION: Final = {
    "Ge": ("minimum",),
    "Gt": ("exclusive_minimum",),
    "Le": ("maximum",),
    "Lt": ("exclusive_maximum",),
    "MinLen": ("min_length",),
    "MaxLen": ("max_length",),
    "Len": ("min_length", "max_length"),
}
_CONSTRAINED_CALLS: Final = {"conint": "int", "confloat": "float", "constr": "str", "conlist": "list", "conset": "set"}
_NAMED_TYPES: Final[dict[str, tuple[str, Limits]]] = {
    "PositiveInt": ("int", {"exclusive_minimum": 0}),
    "NonNegativeInt": ("int", {"minimum": 0}),
    "NegativeInt": ("int", {"exclusive_maximum": 0}),
    "NonPositiveInt": ("int", {"maximum": 0}),
    "PositiveFloat": ("float", {"exclusive_minimum": 0}),
    "NonNegativeFloat": ("float", {"minimum": 0}),
    "NegativeFloat": ("float", {"exclusive_maximum": 0}),
    "NonPositiveFloat": ("float", {"maximum": 0}),
    "FiniteFloat": ("float", {}),
    "StrictInt": ("int", {}),
    "StrictFloat": ("float", {}),
    "StrictStr": ("str", {}),
    "StrictBool": ("bool", {}),
}
_PLAIN_MODULES: Final = ("builtins", "typing", "typing_extensions", "collections.abc", "collections", "pathlib", "")


@dataclass(frozen=True, slots=True)
class Annotation:
    """`fields` are the `Field(...)` calls inside `Annotated`, with the module that each is written in."""

    type: str
    limits: Limits
    choices: list[Any] | None
    fields: list[tuple[Module, ast.Call]]


def read_annotation(sources: Sources, module: Module, expression: ast.expr) -> Annotation:
    reader = _Reader(sources)
    try:
        text = ast.unparse(reader.read(module, expression, whole=True))
    except RecursionError:
        text = "Any"
    calls = [(where, each) for where, each in reader.metadata if isinstance(each, ast.Call)]
    limits = reader.limits | {key: v for where, call in calls for key, v in limits_of(sources, where, call).items()}
    fields = [(where, call) for where, call in calls if last_name(call.func) == "Field"]
    return Annotation(text, limits, reader.choices(), fields)


def limits_of(sources: Sources, module: Module, call: ast.Call) -> Limits:
    """The limits in `Field(ge=0)`, `Gt(0)`, `StringConstraints(...)` or `conint(...)`, as far as the source shows."""
    named = ((_BY_KEYWORD.get(each.arg or ""), each.value) for each in call.keywords)
    positional = zip(_BY_POSITION.get(last_name(call.func), ()), call.args, strict=False)
    found = ((name, literal(sources, module, value)) for name, value in (*named, *positional) if name)
    return {name: value for name, value in found if _makes_sense(name, value)}


def _makes_sense(limit: str, value: object) -> bool:
    if value is UNKNOWN or isinstance(value, bool):
        return False
    if limit == "pattern":
        return isinstance(value, str)
    if limit.endswith("length"):
        return isinstance(value, int) and value >= 0
    return isinstance(value, int | float) and math.isfinite(value)


@dataclass
class _Reader:
    """Reads one annotation: replaces aliases, and strips what is not part of the type."""

    sources: Sources
    limits: Limits = field(default_factory=dict)
    metadata: list[tuple[Module, ast.expr]] = field(default_factory=list)
    enums: list[SourceClass] = field(default_factory=list)
    others: bool = False
    left: int = MAX_NODES

    def choices(self) -> list[Any] | None:
        """The values of the only enum in the annotation. With another class in it, the values would be ambiguous."""
        if self.others or len(set(self.enums)) != 1:
            return None
        return enum_values(self.sources, self.enums[0])

    def read(self, module: Module, node: ast.expr, *, whole: bool) -> ast.expr:
        """The node without aliases. `whole`: its limits apply to the field's value itself."""
        self.left -= 1
        if self.left < 0:
            return ast.Name("Any")
        match node:
            case ast.Constant(value=str(text)):
                return self._forward_reference(module, text, node, whole=whole)
            case ast.Name() | ast.Attribute():
                return self._named(module, node, whole=whole)
            case ast.Subscript():
                return self._generic(module, node, whole=whole)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                sides = self._union(module, [left, right], whole=whole)
                return ast.BinOp(sides[0], ast.BitOr(), sides[1])
            case ast.Call() if last_name(node.func) in _CONSTRAINED_CALLS:
                return self._constrained(module, node, whole=whole)
        return node

    def _forward_reference(self, module: Module, text: str, node: ast.expr, *, whole: bool) -> ast.expr:
        try:
            body = parse(text).body
        except UnreadableSourceError:
            return node
        single = body[0] if len(body) == 1 else None
        return self.read(module, single.value, whole=whole) if isinstance(single, ast.Expr) else node

    def _named(self, module: Module, node: ast.Name | ast.Attribute, *, whole: bool) -> ast.expr:
        meaning = self.sources.resolve(module, node)
        if isinstance(meaning, Constant):
            return self.read(meaning.module, meaning.expression, whole=whole)
        if isinstance(meaning, SourceClass):
            if is_enum(self.sources, meaning):
                self.enums.append(meaning)
            else:
                self.others = True
        elif last_name(node) in _NAMED_TYPES:
            plain, limits = _NAMED_TYPES[last_name(node)]
            self.limits |= limits if whole else {}
            return ast.Name(plain)
        elif not (isinstance(meaning, Foreign) and meaning.module in _PLAIN_MODULES):
            self.others = True
        return node

    def _generic(self, module: Module, node: ast.Subscript, *, whole: bool) -> ast.expr:
        name = last_name(node.value)
        arguments = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name == "Literal":
            return node
        if name in ("Annotated", "Final", "Required") and arguments:
            if whole:
                self.metadata += [(module, each) for each in arguments[1:]]
            return self.read(module, arguments[0], whole=whole)
        if name in ("Optional", "Union"):
            read = self._union(module, arguments, whole=whole, optional=name == "Optional")
        else:
            read = [self.read(module, each, whole=False) for each in arguments]
        return ast.Subscript(node.value, ast.Tuple(read) if isinstance(node.slice, ast.Tuple) else read[0])

    def _union(
        self, module: Module, sides: Iterable[ast.expr], *, whole: bool, optional: bool = False
    ) -> list[ast.expr]:
        """A union. Limits apply to the field only if it has just one side besides null."""
        nodes = list(sides)
        others = [each for each in nodes if not (isinstance(each, ast.Constant) and each.value is None)]
        whole = whole and len(others) == 1 and (optional or len(nodes) <= 2)
        return [self.read(module, each, whole=whole) for each in nodes]

    def _constrained(self, module: Module, call: ast.Call, *, whole: bool) -> ast.expr:
        if whole:
            self.metadata.append((module, call))
        plain = ast.Name(_CONSTRAINED_CALLS[last_name(call.func)])
        element = next((each for each in call.args), None)
        return ast.Subscript(plain, self.read(module, element, whole=False)) if element else plain
