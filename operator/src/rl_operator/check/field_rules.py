"""The rules for one field that a run sets, as a table: the first that objects speaks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rl_operator.api.catalogue import EnvironmentField
from rl_operator.api.fields import SMALLEST, WIRED_FIELDS, Section
from rl_operator.api.loading import nearest
from rl_operator.api.refusal import Refusal, shown
from rl_operator.api.runtime import Bound
from rl_operator.api.sections import same_value
from rl_operator.check.types import is_number, type_problem

SPEC_PATHS: Final[dict[Section, str]] = {"env": "spec.config", "tinker": "spec.tinker"}


@dataclass(frozen=True)
class GivenField:
    """One field of `spec.config` or `spec.tinker`, and what is to be known to judge it."""

    section: Section
    name: str
    value: Any
    runtime: str
    known: Mapping[str, EnvironmentField]
    locked: Mapping[str, Any]
    bounds: Mapping[str, Bound]
    owner: str

    @property
    def path(self) -> str:
        return f"{SPEC_PATHS[self.section]}.{self.name}"

    @property
    def shown(self) -> Any:
        return shown(self.value, self.name)


def refuse_field(field: GivenField) -> Refusal | None:
    """The first rule's objection, if any."""
    objections = (rule(field) for rule in _RULES)
    return next((refusal for refusal in objections if refusal is not None), None)


def _wired(field: GivenField) -> Refusal | None:
    wired = WIRED_FIELDS.get((field.section, field.name))
    return Refusal(code="WiredField", field=field.path, given=field.shown, hint=wired.instead) if wired else None


def _locked(field: GivenField) -> Refusal | None:
    if field.name not in field.locked or same_value(field.value, field.locked[field.name]):
        return None
    locked = field.locked[field.name]
    hint = f"runtime {field.runtime!r} locks it to {locked!r}: leave it out, or choose another runtime"
    return Refusal(code="LockedField", field=field.path, given=field.shown, allowed=locked, locked=locked, hint=hint)


def _unknown(field: GivenField) -> Refusal | None:
    if not field.known or field.name in field.known or field.name in field.locked:
        return None
    return Refusal(
        code="UnknownField",
        field=field.path,
        given=field.shown,
        allowed=sorted(set(field.known) - _wired_names(field.section)),
        hint=f"{field.owner} has no such field{nearest(field.name, field.known)}",
    )


def _wired_names(section: Section) -> set[str]:
    return {name for wired_section, name in WIRED_FIELDS if wired_section == section}


def _wrong_type(field: GivenField) -> Refusal | None:
    known = field.known.get(field.name)
    expected = type_problem(field.value, known.type) if known else None
    if expected is None:
        return None
    hint = f"it must be {expected}"
    return Refusal(code="WrongType", field=field.path, given=field.shown, allowed=expected, hint=hint)


def _too_small(field: GivenField) -> Refusal | None:
    smallest = SMALLEST.get((field.section, field.name))
    if smallest is None or not is_number(field.value):
        return None
    if field.value > smallest.value or (field.value == smallest.value and not smallest.exclusive):
        return None
    allowed = f"{'above' if smallest.exclusive else 'at least'} {smallest.value}"
    hint = f"it must be {allowed}"
    return Refusal(code="OutOfBounds", field=field.path, given=field.shown, allowed=allowed, hint=hint)


def _out_of_bounds(field: GivenField) -> Refusal | None:
    return refuse_outside(field.path, field.value, field.bounds.get(field.name), field.runtime)


_RULES: Final[tuple[Callable[[GivenField], Refusal | None], ...]] = (
    _wired,
    _locked,
    _unknown,
    _wrong_type,
    _too_small,
    _out_of_bounds,
)


def refuse_outside(path: str, value: Any, bound: Bound | None, runtime: str) -> Refusal | None:
    """OutOfBounds for a number outside of a runtime's range; other values pass (their type is another rule's)."""
    if bound is None or not is_number(value):
        return None
    if (bound.min is None or value >= bound.min) and (bound.max is None or value <= bound.max):
        return None
    limits = [f"at least {bound.min:g}"] if bound.min is not None else []
    limits += [f"at most {bound.max:g}"] if bound.max is not None else []
    return Refusal(
        code="OutOfBounds",
        field=path,
        given=value,
        allowed=bound.to_wire(),
        hint=f"runtime {runtime!r} allows {' and '.join(limits)}",
    )
