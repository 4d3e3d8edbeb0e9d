"""JSON values: whether two are the same, and one textual form, which `cel.py` writes in CEL, too: refusals read alike
at admission.

The forms are those of the API server's own CEL (measured on 1.33 and 1.36; a property test compares):
numbers and strings as Go's `strconv.FormatFloat(x, 'g', -1, 64)` and `strconv.Quote`, lists and maps as `"%s".format`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Final, TypeGuard

INT64: Final = range(-(2**63), 2**63)
"""The integers that the API server, databases and other languages carry."""

_ESCAPES: Final = {
    "\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\"",
}  # fmt: skip


def same_value(left: object, right: object) -> bool:
    """Equal as JSON: 1 equals 1.0, but true does not equal 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same_value(value, right[name]) for name, value in left.items())
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same_value, left, right))
    return bool(left == right)


def all_same(values: Sequence[object]) -> bool:
    return all(same_value(values[0], value) for value in values)


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def text_of(value: object) -> str:
    """`null`, `true`, `8`, `4e-05`, `"8"`, `[1, "a"]`, `{"a":1, "b":2}`: always one printable line."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_element, value))}]"
    return _element(value)


def _element(value: object) -> str:
    return formatted(value) if isinstance(value, list | tuple | dict) else _scalar(value, _shortest)


def formatted(value: object) -> str:
    """As CEL's `"%s".format` writes a list or a map: all the way down, and with six decimals."""
    match value:
        case dict():
            entries = sorted((_quoted(str(name)), formatted(item)) for name, item in value.items())
            return "{" + ", ".join(f"{name}:{item}" for name, item in entries) + "}"
        case list() | tuple():
            return f"[{', '.join(map(formatted, value))}]"
    return _scalar(value, "{:f}".format)


def _scalar(value: object, fraction: Callable[[float], str]) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return _number(value, fraction)
        case str():
            return _quoted(value)
    return _quoted(str(value))


def _number(value: float, fraction: Callable[[float], str]) -> str:
    """A 64-bit integer is an integer to the API server, however it was written; other numbers are doubles."""
    try:
        double = float(value)
    except OverflowError:  # an integer that no JSON reader of the API server accepts
        return str(value)
    if not math.isfinite(double):
        return repr(double)
    exact = Decimal(repr(value))
    return str(int(exact)) if exact == exact.to_integral_value() and int(exact) in INT64 else fraction(double)


def _shortest(value: float) -> str:
    """The fewest digits that identify the number, with an exponent below 1e-4 and from 1e6 on."""
    shortest = Decimal(repr(value)).normalize()
    exponent = shortest.adjusted()
    if -4 <= exponent < 6:
        return repr(value)
    mantissa = shortest.scaleb(-exponent)
    return f"{mantissa:f}e{exponent:+03d}"


def _quoted(text: str) -> str:
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escaped, text))}"'


@lru_cache(maxsize=65_536)
def _escaped(character: str) -> str:
    """How it is written. Texts may be long: each of their characters is looked at once."""
    if character in _ESCAPES or character.isprintable():
        return _ESCAPES.get(character, character)
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
