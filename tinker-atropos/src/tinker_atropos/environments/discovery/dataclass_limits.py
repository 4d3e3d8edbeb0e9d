"""Limits that a dataclass states itself: `assert self.min_terms > 0` in one of its methods.

Only comparisons with a number are limits of one field. Chains are read link by link: `0 <= self.p <= 1` has two.
"""

import ast
from collections.abc import Iterator
from typing import Any, Final

from tinker_atropos.environments.discovery.annotations import Limits

_LIMITS: Final[dict[type[ast.cmpop], str]] = {
    ast.GtE: "minimum",
    ast.Gt: "exclusive_minimum",
    ast.LtE: "maximum",
    ast.Lt: "exclusive_maximum",
}
_MIRRORED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.GtE: ast.LtE,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.Lt: ast.Gt,
}


def asserted_limits(node: ast.ClassDef) -> dict[str, Limits]:
    """By field."""
    found: dict[str, Limits] = {}
    asserted = (each.test for each in ast.walk(node) if isinstance(each, ast.Assert))
    for test in asserted:
        for field, limit, value in _comparisons(test):
            found.setdefault(field, {})[limit] = value
    return found


def _comparisons(test: ast.expr) -> Iterator[tuple[str, str, Any]]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for part in test.values:
            yield from _comparisons(part)
    if not isinstance(test, ast.Compare):
        return
    sides = [test.left, *test.comparators]
    for left, op, right in zip(sides, test.ops, sides[1:], strict=False):
        operator = type(op)
        if operator not in _LIMITS:
            continue
        if (field := _own_field(left)) and (number := _number(right)) is not None:
            yield field, _LIMITS[operator], number
        elif (field := _own_field(right)) and (number := _number(left)) is not None:
            yield field, _LIMITS[_MIRRORED[operator]], number


def _own_field(node: ast.expr) -> str | None:
    """`self.NAME`."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name
    return None


def _number(node: ast.expr) -> float | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
