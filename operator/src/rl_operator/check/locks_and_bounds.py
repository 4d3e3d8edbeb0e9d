"""What is checked of a run, section by section; and the rules for one field, as a table: the first one that objects
determines the refusal.

Limits that an environment's source states for a field are included.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from rl_contract.trainer_settings import AUTO
from rl_operator.api import hints
from rl_operator.api.catalog import CatalogEnvironment, EnvironmentField
from rl_operator.api.refusal import Refusal, RefusalCode, looks_like_a_key, redacted
from rl_operator.api.run_inputs import RunInputs, Sections, effective_sections
from rl_operator.api.runtime import Bound, Runtime
from rl_operator.api.settings.fields import (
    LARGEST,
    SMALLEST,
    TRAINER_FIELDS,
    WIRED_FIELDS,
    Section,
    flattened,
    outer_names,
    steps_of,
)
from rl_operator.api.training_run import TrainingRun
from rl_operator.api.value_text import same_value, text_of
from rl_operator.check.types import is_number, type_problem
from rl_operator.documents.parse import field_path, nearest

SPEC_PATHS: Final[dict[Section, str]] = {"env": "spec.config", "trainer": "spec.trainer"}


@dataclass(frozen=True)
class SectionSubject:
    """One section that a run may fill, by names of fields. `known` is empty if nothing is known about the fields."""

    section: Section
    owner: str
    runtime: str
    written: Mapping[str, Any]
    """As the run's file has it: fields inside of a mapping are nested."""

    given: Mapping[str, Any]
    effective: Mapping[str, Any]
    known: Mapping[str, EnvironmentField]
    locked: Mapping[str, Any]
    bounds: Mapping[str, Bound]

    @cached_property
    def outer(self) -> frozenset[str]:
        """Names of mappings that hold fields."""
        return outer_names(self.known)

    def path(self, name: str) -> str:
        return self.path_of(*steps_of(name, self.outer))

    def path_of(self, *steps: str) -> str:
        return field_path((*SPEC_PATHS[self.section].split("."), *steps))

    @property
    def in_force(self) -> dict[str, Any]:
        """All values, with the defaults of fields that are not set."""
        return {name: field.default for name, field in self.known.items()} | dict(self.effective)


@dataclass(frozen=True)
class Subject:
    run: TrainingRun
    inputs: RunInputs

    @property
    def runtime(self) -> Runtime:
        return self.inputs.runtime

    @property
    def environment_exists(self) -> bool:
        return self.inputs.environment.known is not None

    @cached_property
    def environment(self) -> CatalogEnvironment:
        """Without fields when it is not known."""
        return self.inputs.environment.known or CatalogEnvironment(name=self.run.spec.environment)

    @cached_property
    def sections(self) -> Sections:
        return effective_sections(self.run, self.runtime, self.environment)

    @cached_property
    def env(self) -> SectionSubject:
        known = self.environment.fields_by_name
        return SectionSubject(
            section="env",
            owner=f"environment {self.environment.name!r}",
            runtime=self.runtime.metadata.name,
            written=self.run.spec.config,
            given=flattened(self.run.spec.config, known),
            effective=self.sections.env,
            known=known,
            locked=flattened(self.runtime.spec.locked.env, known),
            bounds=self.runtime.spec.bounds.env,
        )

    @cached_property
    def trainer(self) -> SectionSubject:
        return SectionSubject(
            section="trainer",
            owner="the trainer",
            runtime=self.runtime.metadata.name,
            written=self.run.spec.trainer,
            given=flattened(self.run.spec.trainer, TRAINER_FIELDS),
            effective=self.sections.trainer,
            known=TRAINER_FIELDS,
            locked=flattened(self.runtime.spec.locked.trainer, TRAINER_FIELDS),
            bounds=self.runtime.spec.bounds.trainer,
        )


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
    wired = WIRED_FIELDS.get((field.of.section, field.name))
    return field.refuse("WiredField", wired.instead) if wired else None


def _key(field: GivenField) -> Refusal | None:
    if not looks_like_a_key(field.value):
        return None
    return field.refuse("WiredField", hints.KEY_IN_RUN)


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


_INT64: Final = range(-(2**63), 2**63)
"""What databases and other languages carry."""


def _largest_problem(section: Section, name: str, value: Any) -> str | None:
    """Also of a number that nothing carries."""
    largest = LARGEST.get((section, name))
    if largest is not None and is_number(value) and value > largest:
        return hints.AT_MOST % largest
    if isinstance(value, int) and value not in _INT64:
        return hints.AT_MOST % _INT64[-1] if value > 0 else hints.AT_LEAST % _INT64[0]
    return None


def refuse_outside(path: str, value: object, bound: Bound | None, runtime: str) -> Refusal | None:
    """OutOfBounds for a number outside of a runtime's range, and for one that is not known yet; other values pass (the
    type rule covers them).
    """
    if bound is None or not _is_outside(value, bound):
        return None
    hint = hints.ALLOWS % (runtime, _range_text(bound)) + (hints.UNKNOWN_NUMBER if value == AUTO else "")
    return Refusal(code="OutOfBounds", field=path, given=value, allowed=bound.to_wire(), hint=hint)


def _is_outside(value: Any, bound: Bound) -> bool:
    """Whether a number is outside of a range, or may be; a value that is not a number never is."""
    if value == AUTO:
        return bound.min is not None or bound.max is not None
    below = is_number(value) and bound.min is not None and value < bound.min
    return below or (is_number(value) and bound.max is not None and value > bound.max)


def _range_text(bound: Bound) -> str:
    """`at least 1 and at most 2500`."""
    ends = ((hints.AT_LEAST, bound.min), (hints.AT_MOST, bound.max))
    return hints.AND.join(template % text_of(end) for template, end in ends if end is not None)


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
                yield template % _shown(limit), is_kept(value, limit)
    if isinstance(value, str | list | tuple | dict):
        unit = "characters" if isinstance(value, str) else "entries"
        if field.min_length is not None:
            yield f"at least {field.min_length} {unit} long", len(value) >= field.min_length
        if field.max_length is not None:
            yield f"at most {field.max_length} {unit} long", len(value) <= field.max_length
    if isinstance(value, str) and field.pattern is not None:
        yield f"a string that matches {field.pattern}", _matches(field.pattern, value)


def _shown(limit: float) -> str:
    return str(int(limit)) if limit.is_integer() else str(limit)


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
