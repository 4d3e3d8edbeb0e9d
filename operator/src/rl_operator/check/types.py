"""Does a JSON value fit a field's source annotation? Strict, with the few conversions that lose nothing."""

import ast
from collections.abc import Callable
from typing import Any, Final


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_SIMPLE: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "int": ("a whole number", _is_integer),
    "float": ("a number", is_number),
    "str": ("a text", lambda value: isinstance(value, str)),
    "Path": ("a text", lambda value: isinstance(value, str)),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "None": ("null", lambda value: value is None),
}
_ARRAYS: Final = ("list", "tuple", "set", "frozenset", "Sequence", "Iterable", "Collection")
_MAPPINGS: Final = ("dict", "Mapping", "MutableMapping")


def type_problem(value: Any, annotation: str) -> str | None:
    """What the field takes, e.g. `a whole number or null`, when the value does not fit; None when it does.

    A whole number fits `float`; nothing else is converted: "8" is no `int`, 1 is no `bool`. `Optional`, `Union`, `|`,
    `Literal`, `Annotated` and the element types of lists and mappings are looked into. A class that is not known here
    (an enum, a model) fits anything: the environment's own config class decides at the start.
    """
    try:
        node = ast.parse(annotation, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    alternatives = list(_alternatives(node))
    if any(_fits(value, alternative) for alternative in alternatives):
        return None
    return " or ".join(dict.fromkeys(_describe(alternative) for alternative in alternatives))


def _name(node: ast.expr) -> str:
    """`int`, `None`, or the last part of `typing.List`; of `list[int]` it is `list`."""
    match node:
        case ast.Constant(value=None):
            return "None"
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return {"List": "list", "Dict": "dict", "Tuple": "tuple", "Set": "set"}.get(name, name)
        case ast.Subscript(value=inner):
            return _name(inner)
    return ""


def _arguments(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.Subscript(slice=ast.Tuple(elts=elements)):
            return elements
        case ast.Subscript(slice=single):
            return [single]
    return []


def _alternatives(node: ast.expr) -> list[ast.expr]:
    match node, _name(node):
        case ast.BinOp(left=left, op=ast.BitOr(), right=right), _:
            return _alternatives(left) + _alternatives(right)
        case ast.Subscript(), "Optional":
            return [*_alternatives(_arguments(node)[0]), ast.Constant(None)]
        case ast.Subscript(), "Union":
            return [alternative for argument in _arguments(node) for alternative in _alternatives(argument)]
        case ast.Subscript(), "Annotated" | "Final" | "ClassVar":
            return _alternatives(_arguments(node)[0])
    return [node]


def _fits_any(value: Any, node: ast.expr) -> bool:
    return any(_fits(value, alternative) for alternative in _alternatives(node))


def _fits(value: Any, node: ast.expr) -> bool:
    name, arguments = _name(node), _arguments(node)
    if name in _SIMPLE:
        return _SIMPLE[name][1](value)
    if name == "Literal":
        return any(type(value) is type(choice) and value == choice for choice in _choices(node))
    if name in _ARRAYS:
        elements = [argument for argument in arguments if not _is_ellipsis(argument)]
        homogeneous = len(elements) == 1
        return isinstance(value, list) and (not homogeneous or all(_fits_any(item, elements[0]) for item in value))
    if name in _MAPPINGS:
        values = arguments[1] if len(arguments) == 2 else None
        return isinstance(value, dict) and (values is None or all(_fits_any(v, values) for v in value.values()))
    return True


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _choices(node: ast.expr) -> list[Any]:
    return [argument.value for argument in _arguments(node) if isinstance(argument, ast.Constant)]


def _describe(node: ast.expr) -> str:
    name, arguments = _name(node), _arguments(node)
    if name in _SIMPLE:
        return _SIMPLE[name][0]
    if name == "Literal":
        return "one of " + ", ".join(map(str, _choices(node)))
    if name in _ARRAYS:
        return f"a list of {_describe(arguments[0])}" if arguments else "a list"
    if name in _MAPPINGS:
        return f"a mapping to {_describe(arguments[1])}" if len(arguments) == 2 else "a mapping"
    return ast.unparse(node)
