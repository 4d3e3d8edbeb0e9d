"""Does a JSON value fit a field's source annotation? Strict, with a few lossless conversions."""

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from rl_operator.api.value_text import text_of


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_SIMPLE: Final[dict[str, tuple[str, Callable[[object], bool]]]] = {
    "int": ("an integer", _is_integer),
    "float": ("a number", is_number),
    "str": ("a string", lambda value: isinstance(value, str)),
    "Path": ("a string", lambda value: isinstance(value, str)),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "None": ("null", lambda value: value is None),
}
_ARRAYS: Final = ("list", "tuple", "set", "frozenset", "Sequence", "Iterable", "Collection")
_MAPPINGS: Final = ("dict", "Mapping", "MutableMapping")
_ANYTHING: Final = ("", "Any", "object")
_INTEGER_KEY: Final = re.compile(r"-?[0-9]+")


def type_problem(value: object, annotation: str, choices: Sequence[object] | None = None) -> str | None:
    """What the field accepts, e.g. `an integer or null`, if the value does not fit; None if it does.

    The rules, the same as those of the environment's container except for the last but one:

    * `float` also accepts integers, and the API server stores 8.0 as 8, so an `int` accepts both. Nothing else is
      converted: "8" is not an `int`, 1 is not a `bool`, true is not an `int`.
    * Lists, tuples, sets and similar types are JSON arrays; a tuple of fixed length has as many entries as types.
      Mappings are JSON objects. Entries, values and keys are checked, too.
    * `Optional`, `Union` and `|` accept what one of their members accepts; null only where one of them says so.
    * `Literal` accepts its values. An enum accepts its members' values: `choices`, the values of the one enum in the
      annotation. Values are compared with their type: true is not 1.
    * A class that is not known here (a model, an enum without `choices`) fits anything: the environment's own config
      class decides at the start.
    """
    alternatives = _read(annotation)
    try:
        if any(_fits(value, alternative, choices) for alternative in alternatives):
            return None
        return " or ".join(dict.fromkeys(_describe(alternative, choices) for alternative in alternatives)) or None
    except (ValueError, RecursionError, MemoryError):
        return None


@lru_cache(maxsize=1024)
def _read(annotation: str) -> tuple[ast.expr, ...]:
    """Its alternatives; none if it cannot be read. Annotations repeat, and reading one costs more than a check."""
    try:
        return tuple(_alternatives(ast.parse(annotation, mode="eval").body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def _name(node: ast.expr) -> str:
    """`int`, `None`, or the last part of `typing.List`; for `list[int]` it is `list`."""
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


def _fits_any(value: object, node: ast.expr, choices: Sequence[object] | None) -> bool:
    return any(_fits(value, alternative, choices) for alternative in _alternatives(node))


def _fits(value: object, node: ast.expr, choices: Sequence[object] | None) -> bool:
    name = _name(node)
    if name in _SIMPLE:
        return _SIMPLE[name][1](value)
    if name == "Literal":
        values = _literals(node)
        return values is None or _is_among(value, values)
    if name in _ARRAYS:
        return isinstance(value, list | tuple) and _entries_fit(value, node, choices)
    if name in _MAPPINGS:
        return isinstance(value, dict) and _items_fit(value, _arguments(node), choices)
    return choices is None or name in _ANYTHING or _is_among(value, choices)


def _entries_fit(values: Sequence[object], node: ast.expr, choices: Sequence[object] | None) -> bool:
    types = _arguments(node)
    if _name(node) == "tuple" and types and not any(map(_is_ellipsis, types)):
        return len(values) == len(types) and all(
            _fits_any(value, each, choices) for value, each in zip(values, types, strict=True)
        )
    return not types or all(_fits_any(value, types[0], choices) for value in values)


def _items_fit(value: dict[str, object], types: list[ast.expr], choices: Sequence[object] | None) -> bool:
    if len(types) != 2:
        return True
    keys_fit = all(_key_fits(key, types[0], choices) for key in value)
    return keys_fit and all(_fits_any(item, types[1], choices) for item in value.values())


def _key_fits(key: str, node: ast.expr, choices: Sequence[object] | None) -> bool:
    """JSON keys are always strings; a string that holds a number will do."""
    return _fits_any(key, node, choices) or (_name(node) == "int" and _INTEGER_KEY.fullmatch(key) is not None)


def _is_among(value: object, choices: Sequence[object]) -> bool:
    return any(type(value) is type(choice) and value == choice for choice in choices)


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _literals(node: ast.expr) -> list[object] | None:
    """The values of a Literal; None if it names something else, like an enum's member."""
    try:
        return [ast.literal_eval(argument) for argument in _arguments(node)]
    except ValueError:
        return None


def _describe(node: ast.expr, choices: Sequence[object] | None) -> str:
    name, arguments = _name(node), _arguments(node)
    if name in _SIMPLE:
        return _SIMPLE[name][0]
    if name == "Literal":
        return _one_of(_literals(node) or ())
    if name in _ARRAYS:
        return f"a list, each item {_describe(arguments[0], choices)}" if arguments else "a list"
    if name in _MAPPINGS:
        return f"a mapping, each value {_describe(arguments[1], choices)}" if len(arguments) == 2 else "a mapping"
    return ast.unparse(node) if choices is None else _one_of(choices)


def _one_of(choices: Iterable[object]) -> str:
    plain = [each if isinstance(each, str) and each.isprintable() else text_of(each) for each in choices]
    return plain[0] if len(plain) == 1 else f"one of {', '.join(plain)}"
