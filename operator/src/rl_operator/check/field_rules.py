"""The rules for one field of a run, as a table: the first one that objects determines the refusal.

Its type and its limits are those that the source of the environment, or of the trainer, states; locks and bounds are
the runtime's.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from rl_contract.trainer_settings import AUTO
from rl_operator.api import hints
from rl_operator.api.catalog import EnvironmentField
from rl_operator.api.refusal import Refusal, RefusalCode, looks_like_a_key, redacted
from rl_operator.api.run_inputs import SectionSubject, Subject
from rl_operator.api.runtime import Bound
from rl_operator.api.settings.fields import LARGEST, SMALLEST, WIRED_FIELDS, Section, steps_of
from rl_operator.api.value_text import INT64, is_number, same_value, text_of
from rl_operator.documents.parse import nearest


@dataclass(frozen=True)
class GivenField:
    """One field of `spec.config` or `spec.trainer`, by its name in the catalog."""

    of: SectionSubject
    name: str
    value: Any

    def refuse(self, code: RefusalCode, hint: str, **more: object) -> Refusal:
        given = redacted(self.value, self.name)
        return Refusal(code=code, field=self.of.path(self.name), given=given, hint=hint, **more)


def field_refusals(subject: Subject) -> Iterator[Refusal]:
    """At most one refusal per field, in the order of sections and names."""
    for section in (subject.env, subject.trainer):
        for name, value in sorted(section.given.items()):
            objections = (rule(GivenField(section, name, value)) for rule in _RULES)
            yield from [refusal for refusal in objections if refusal is not None][:1]


def _not_nested(field: GivenField) -> Refusal | None:
    """A listing's name is not how a file has it: two ways to set one field could disagree."""
    steps = steps_of(field.name, field.of.outer)
    if len(steps) == 1 or field.name not in field.of.written:
        return None
    path, given = field.of.path_of(field.name), redacted(field.value, field.name)
    return Refusal(code="UnknownField", field=path, given=given, hint=nested_hint(steps))


def nested_hint(steps: Iterable[str]) -> str:
    return hints.NESTED % tuple(text_of(redacted(step)) for step in steps)


def _not_a_mapping(field: GivenField) -> Refusal | None:
    if field.name not in field.of.outer:
        return None
    inside = next(name for name in field.of.known if name.startswith(f"{field.name}."))
    example = text_of(redacted(inside.removeprefix(f"{field.name}.")))
    expected = f"a mapping of its fields, like {{{example}: …}}"
    return field.refuse("WrongType", hints.MUST_BE % expected, allowed=expected)


def _wired(field: GivenField) -> Refusal | None:
    instead = WIRED_FIELDS.get((field.of.section, field.name))
    return field.refuse("WiredField", instead) if instead else None


def _key(field: GivenField) -> Refusal | None:
    return field.refuse("WiredField", hints.KEY_IN_RUN) if looks_like_a_key(field.value) else None


def _locked(field: GivenField) -> Refusal | None:
    locked = field.of.locked
    if field.name not in locked or same_value(field.value, locked[field.name]):
        return None
    value = redacted(locked[field.name])
    hint = hints.LOCKED % (field.of.runtime, text_of(value))
    return field.refuse("LockedField", hint, allowed=value, locked=value)


def _unknown(field: GivenField) -> Refusal | None:
    known = field.of.known
    if not known or field.name in known or field.name in field.of.locked:
        return None
    settable = sorted(name for name in known if (field.of.section, name) not in WIRED_FIELDS)
    hint = f"{field.of.owner} has no such field{nearest(field.name, settable)}"
    return field.refuse("UnknownField", hint, allowed=settable)


def _no_such_value(field: GivenField) -> Refusal | None:
    problem = value_problem(field.of.section, field.name, field.value, field.of.known.get(field.name))
    if problem is None:
        return None
    code, allowed = problem
    return field.refuse(code, hints.MUST_BE % allowed, allowed=allowed)


def _out_of_bounds(field: GivenField) -> Refusal | None:
    if field.name in field.of.locked:
        return None  # the runtime decides its value
    return refuse_outside(field.of.path(field.name), field.value, field.of.bounds.get(field.name), field.of.runtime)


_RULES: Final[tuple[Callable[[GivenField], Refusal | None], ...]] = (
    _wired,
    _key,
    _not_nested,
    _not_a_mapping,
    _locked,
    _unknown,
    _no_such_value,
    _out_of_bounds,
)


def value_problem(
    section: Section, name: str, value: object, known: EnvironmentField | None
) -> tuple[RefusalCode, str] | None:
    """What is allowed, e.g. `at least 1`, in place of a value that a field cannot have, whatever a runtime allows;
    None if it can. `known` None: only our own limits hold.
    """
    problems: tuple[tuple[RefusalCode, str | None], ...] = (
        ("OutOfBounds", _largest_problem(section, name, value)),  # 1e21 steps are too many, rather than not an integer
        ("WrongType", type_problem(value, known.type, known.choices) if known else None),
        ("OutOfBounds", constraint_problem(value, known) if known else None),
        ("OutOfBounds", _smallest_problem(section, name, value)),
    )
    return next(((code, allowed) for code, allowed in problems if allowed), None)


def _smallest_problem(section: Section, name: str, value: Any) -> str | None:
    smallest = SMALLEST.get((section, name))
    if smallest is None or not is_number(value):
        return None
    if value > smallest.value or (value == smallest.value and not smallest.exclusive):
        return None
    return (hints.ABOVE if smallest.exclusive else hints.AT_LEAST) % smallest.value


def _largest_problem(section: Section, name: str, value: Any) -> str | None:
    """Also of a number that nothing carries."""
    largest = LARGEST.get((section, name))
    if largest is not None and is_number(value) and value > largest:
        return hints.AT_MOST % largest
    if isinstance(value, int) and value not in INT64:
        return hints.AT_MOST % INT64[-1] if value > 0 else hints.AT_LEAST % INT64[0]
    return None


def refuse_outside(path: str, value: object, bound: Bound | None, runtime: str) -> Refusal | None:
    """OutOfBounds for a number outside of a runtime's range, and for one that is not known yet; other values pass (the
    type rule covers them).
    """
    if bound is None or not _is_outside(value, bound):
        return None
    ends = ((hints.AT_LEAST, bound.min), (hints.AT_MOST, bound.max))
    allowed = hints.AND.join(template % text_of(end) for template, end in ends if end is not None)
    hint = hints.ALLOWS % (runtime, allowed) + (hints.UNKNOWN_NUMBER if value == AUTO else "")
    return Refusal(code="OutOfBounds", field=path, given=value, allowed=bound.to_wire(), hint=hint)


def refusals_outside(cases: Iterable[tuple[str, object, Bound]], runtime: str) -> Iterator[Refusal]:
    """The same for each path with its value and bound."""
    yield from filter(None, (refuse_outside(path, value, bound, runtime) for path, value, bound in cases))


def _is_outside(value: Any, bound: Bound) -> bool:
    """Whether a number is outside of a range, or may be; a value that is not a number never is."""
    low, high = bound.min, bound.max
    if value == AUTO:
        return low is not None or high is not None
    return is_number(value) and ((low is not None and value < low) or (high is not None and value > high))


_COMPARISONS: Final[tuple[tuple[str, str, Callable[[Any, Any], bool]], ...]] = (
    ("minimum", hints.AT_LEAST, operator.ge),
    ("exclusive_minimum", hints.ABOVE, operator.gt),
    ("maximum", hints.AT_MOST, operator.le),
    ("exclusive_maximum", "below %s", operator.lt),
)


def constraint_problem(value: object, field: EnvironmentField) -> str | None:
    """All that the field's limits allow, e.g. `at least 1024 and at most 32000`, if the value is outside of them.

    Numbers are compared; strings, lists and mappings are measured by length; strings are searched for the pattern. A
    value of another kind passes: the type rule decides whether it fits at all.
    """
    kept = list(_limits(value, field))
    return None if all(is_kept for _, is_kept in kept) else " and ".join(allowed for allowed, _ in kept)


def _limits(value: object, field: EnvironmentField) -> Iterator[tuple[str, bool]]:
    """(what is allowed, whether the value satisfies it), for each limit that applies to such a value."""
    if is_number(value):
        for name, template, is_kept in _COMPARISONS:
            if (limit := getattr(field, name)) is not None:
                yield template % text_of(limit), is_kept(value, limit)
    if isinstance(value, str | list | tuple | dict):
        unit = "characters" if isinstance(value, str) else "entries"
        if field.min_length is not None:
            yield f"at least {field.min_length} {unit} long", len(value) >= field.min_length
        if field.max_length is not None:
            yield f"at most {field.max_length} {unit} long", len(value) <= field.max_length
    if isinstance(value, str) and field.pattern is not None:
        yield f"a string that matches {field.pattern}", _matches(field.pattern, value)


def _matches(pattern: str, text: str) -> bool:
    """As pydantic decides in the environment. Its engine takes linear time, and the pattern is untrusted."""
    validator = _validator(pattern)
    if validator is None:
        return True
    try:
        validator.validate_python(text)
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=256)
def _validator(pattern: str) -> SchemaValidator | None:
    """None for a pattern that the engine does not support: the environment's own class decides at the start."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern))
    except SchemaError:
        return None


# --- types ----------------------------------------------------------------------------------------------------------
_SIMPLE: Final[dict[str, tuple[str, Callable[[object], bool]]]] = {
    "int": ("an integer", lambda value: isinstance(value, int) and not isinstance(value, bool)),
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
    any_length = any(isinstance(each, ast.Constant) and each.value is Ellipsis for each in types)
    if _name(node) == "tuple" and types and not any_length:
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
