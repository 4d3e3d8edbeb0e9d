"""What a run may set for an environment and the trainer: type, default, limits and locks of every field. Pure."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rl_contract.trainer_settings import AUTO
from rl_operator.api.catalog import CatalogEnvironment, EnvironmentField
from rl_operator.api.model import ObjectMeta
from rl_operator.api.run_inputs import effective_sections
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
from rl_operator.api.training_run import RunSpec, TrainingRun
from rl_operator.check.types import type_problem
from rl_operator.documents.yaml_text import flow, json_value

SPEC_SECTIONS: Final[Mapping[str, Section]] = {"config": "env", "trainer": "trainer"}
"""Where a run's spec has a section of the config file."""

Limit = tuple[float, bool]
"""A number, and whether it is exclusive."""


@dataclass(frozen=True)
class SettableField:
    """One field as a run sees it. `default` is in force if the run sets nothing."""

    section: str
    """config or trainer."""

    field: EnvironmentField
    default: Any
    locked: bool
    allowed: str
    place: tuple[str, ...]
    """Its path below `spec`: ("config", "taskset", "size")."""

    bound: Bound | None = None

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def type(self) -> str:
        """Short: the values of a Literal are in `allowed`."""
        return "choice" if _literal_values(self.field.type) or self.field.choices else self.field.type

    def to_wire(self) -> dict[str, Any]:
        """Everything that is known about the field."""
        lock = {"locked": self.default} if self.locked else {}
        bounds = {"bounds": self.bound.to_wire()} if self.bound else {}
        path = ".".join(("spec", *self.place))
        return {
            **self.field.to_wire(),
            "path": path,
            "default": self.default,
            "allowed": self.allowed,
            **lock,
            **bounds,
        }


def fields_of(environment: CatalogEnvironment, runtime: Runtime) -> tuple[SettableField, ...]:
    """The fields of `spec.config`, then of `spec.trainer`: settable ones first. Wired ones cannot be set."""
    found = (
        *_section("config", environment.fields_by_name, environment, runtime),
        *_section("trainer", TRAINER_FIELDS, environment, runtime),
    )
    return tuple(sorted(found, key=lambda field: field.locked))


def plain_run(environment: str, runtime: str, namespace: str = "default") -> TrainingRun:
    """A run that sets nothing."""
    return TrainingRun(
        metadata=ObjectMeta(name="run", namespace=namespace), spec=RunSpec(environment=environment, runtime=runtime)
    )


def _section(
    name: str, known: Mapping[str, EnvironmentField], environment: CatalogEnvironment, runtime: Runtime
) -> Iterator[SettableField]:
    section = SPEC_SECTIONS[name]
    effective = getattr(
        effective_sections(plain_run(environment.name, runtime.metadata.name), runtime, environment), section
    )
    locked: Mapping[str, Any] = flattened(getattr(runtime.spec.locked, section), known)
    outer = outer_names(known)
    bounds: Mapping[str, Bound] = getattr(runtime.spec.bounds, section)
    for field in known.values():
        if (section, field.name) in WIRED_FIELDS:
            continue
        yield SettableField(
            section=name,
            field=field,
            default=effective.get(field.name, field.default),
            locked=field.name in locked,
            allowed=_allowed(section, field, bounds.get(field.name)),
            place=(name, *steps_of(field.name, outer)),
            bound=bounds.get(field.name),
        )


def _allowed(section: Section, field: EnvironmentField, bound: Bound | None) -> str:
    """The source's limits, the trainer's own and the runtime's bounds, as text."""
    values = field.choices or _literal_values(field.type)
    if values:
        return ", ".join(map(str, values))
    lows, highs = list(_lows(section, field, bound)), list(_highs(section, field, bound))
    low = max(lows, default=None)
    high = min(highs, key=lambda limit: (limit[0], not limit[1]), default=None)
    parts = [f"{'above' if low[1] else 'at least'} {flow(json_value(low[0]))}"] if low else []
    parts += [f"{'below' if high[1] else 'at most'} {flow(json_value(high[0]))}"] if high else []
    if field.min_length is not None:
        parts.append(f"length at least {field.min_length}")
    if field.max_length is not None:
        parts.append(f"length at most {field.max_length}")
    if field.pattern is not None:
        parts.append(f"matching {field.pattern}")
    if bound is None and type_problem(AUTO, field.type) is None and type_problem("", field.type):
        parts.append(f"or {AUTO}")
    return ", ".join(parts)


def _lows(section: Section, field: EnvironmentField, bound: Bound | None) -> Iterator[Limit]:
    smallest = SMALLEST.get((section, field.name))
    if smallest is not None:
        yield smallest.value, smallest.exclusive
    if field.minimum is not None:
        yield field.minimum, False
    if field.exclusive_minimum is not None:
        yield field.exclusive_minimum, True
    if bound is not None and bound.min is not None:
        yield bound.min, False


def _highs(section: Section, field: EnvironmentField, bound: Bound | None) -> Iterator[Limit]:
    largest = LARGEST.get((section, field.name))
    if largest is not None:
        yield largest, False
    if field.maximum is not None:
        yield field.maximum, False
    if field.exclusive_maximum is not None:
        yield field.exclusive_maximum, True
    if bound is not None and bound.max is not None:
        yield bound.max, False


def _literal_values(type_: str) -> tuple[object, ...]:
    """`('a', 'b')` for `Literal['a', 'b']`; empty for every other type."""
    if not (type_.startswith("Literal[") and type_.endswith("]")):
        return ()
    try:
        values = ast.literal_eval(f"({type_.removeprefix('Literal[').removesuffix(']')},)")
    except (ValueError, SyntaxError):
        return ()
    return tuple(values)
