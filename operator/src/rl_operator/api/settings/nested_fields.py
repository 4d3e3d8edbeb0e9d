"""Fields inside of a mapping of `spec.config`: a catalog lists `taskset.size`, and a file has `taskset: {size: 3}`.

Rules and listings know such a field by its dotted name, so that it is like every other; files, runtimes and the
rendered config have it nested, one level deep.
"""

from collections.abc import Collection, Mapping
from typing import Any


def outer_names(known: Collection[str]) -> frozenset[str]:
    """`taskset`, if `taskset.size` is a field. A field that is a mapping itself holds no fields."""
    return frozenset(name.partition(".")[0] for name in known if "." in name).difference(known)


def steps_of(name: str, outer: Collection[str]) -> tuple[str, ...]:
    """The path of a field in a file: ("taskset", "size") for `taskset.size`."""
    first, dot, rest = name.partition(".")
    return (first, rest) if dot and first in outer else (name,)


def at_path(path: Collection[str], value: object) -> Any:
    """The value, nested: `{"taskset": {"size": 3}}` for 3 at ("taskset", "size")."""
    for step in reversed(tuple(path)):
        value = {step: value}
    return value


def flattened(values: Mapping[str, object], known: Collection[str]) -> dict[str, Any]:
    """A file's values by the names of fields, where `known` are all names. A value that should be a mapping and is
    not stays under its outer name.
    """
    outer = outer_names(known)
    inside = {
        f"{name}.{inner}": each
        for name, value in values.items()
        if name in outer and isinstance(value, Mapping)
        for inner, each in value.items()
    }
    plain = {n: value for n, value in values.items() if n not in outer or not isinstance(value, Mapping)}
    return plain | inside


def nested(values: Mapping[str, object], known: Collection[str]) -> dict[str, Any]:
    """The inverse of `flattened`, with the outer names in alphabetical order, too."""
    outer, found = outer_names(known), dict[str, Any]()
    for name, value in values.items():
        first, *inner = steps_of(name, outer)
        if inner:
            found.setdefault(first, {})[inner[0]] = value
        else:
            found[first] = value
    return {name: found[name] for name in sorted(found)}
