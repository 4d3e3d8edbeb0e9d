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
from rl_operator.check.field_rules import type_problem
from rl_operator.documents.yaml_text import flow, json_value

SPEC_SECTIONS: Final[Mapping[str, Section]] = {"config": "env", "trainer": "trainer"}
"""Where a run's spec has a section of the config file."""

Limit = tuple[float, bool]
"""A number, and whether it is exclusive."""


@dataclass(frozen=True)
class SettableField:
    """One field as a run sees it. `default` is in force if the run sets nothing."""

    field: EnvironmentField
    place: tuple[str, ...]
    """Its path below `spec`: ("config", "taskset", "size"), ("backoffLimit",)."""

    default: Any
    allowed: str
    locked: bool = False
    bound: Bound | None = None

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def section(self) -> str:
        """`config` or `trainer`; for agents also wandb, or a field of the spec itself."""
        return self.place[0]

    @property
    def path(self) -> str:
        """`config.group_size`, `wandb.project`, `spec.backoffLimit`: unique."""
        return ".".join(self.place if len(self.place) > 1 else ("spec", *self.place))

    @property
    def type(self) -> str:
        """Short: the values of a Literal are in `allowed`."""
        return "choice" if _literal_values(self.field.type) or self.field.choices else self.field.type

    def to_wire(self) -> dict[str, Any]:
        """Everything that is known about the field."""
        return {
            **self.field.to_wire(),
            "path": ".".join(("spec", *self.place)),
            "default": self.default,
            "allowed": self.allowed,
            **({"locked": self.default} if self.locked else {}),
            **({"bounds": self.bound.to_wire()} if self.bound else {}),
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
        bound = bounds.get(field.name)
        yield SettableField(
            field=field,
            place=(name, *steps_of(field.name, outer)),
            default=effective.get(field.name, field.default),
            allowed=_allowed(section, field, bound),
            locked=field.name in locked,
            bound=bound,
        )


def _allowed(section: Section, field: EnvironmentField, bound: Bound | None) -> str:
    """The source's limits, the trainer's own and the runtime's bounds, as text."""
    values = field.choices or _literal_values(field.type)
    if values:
        return ", ".join(map(str, values))
    smallest, largest = SMALLEST.get((section, field.name)), LARGEST.get((section, field.name))
    ours, inner = (smallest.value, smallest.exclusive) if smallest else (None, False), bound or Bound()
    lows = _stated(ours, (field.minimum, False), (field.exclusive_minimum, True), (inner.min, False))
    highs = _stated((largest, False), (field.maximum, False), (field.exclusive_maximum, True), (inner.max, False))
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


def _stated(*limits: tuple[float | None, bool]) -> list[Limit]:
    """Those that are there."""
    return [(number, is_exclusive) for number, is_exclusive in limits if number is not None]


def _literal_values(type_: str) -> tuple[object, ...]:
    """`('a', 'b')` for `Literal['a', 'b']`; empty for every other type."""
    if not (type_.startswith("Literal[") and type_.endswith("]")):
        return ()
    try:
        values = ast.literal_eval(f"({type_.removeprefix('Literal[').removesuffix(']')},)")
    except (ValueError, SyntaxError):
        return ()
    return tuple(values)
