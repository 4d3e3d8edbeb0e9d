"""One run against its runtime and the catalogue."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rl_operator.api.catalogue import Catalogue, CatalogueEnvironment
from rl_operator.api.fields import SHARED_NUMBERS, TINKER_FIELDS
from rl_operator.api.loading import nearest
from rl_operator.api.refusal import Refusal, shown
from rl_operator.api.run import TrainingRun
from rl_operator.api.runtime import Bound, Runtime
from rl_operator.api.sections import effective_sections
from rl_operator.check.field_rules import SPEC_PATHS, GivenField, refuse_field, refuse_outside

MAX_REPORTED: Final = 3
"""How many refusals a status repeats; `rlctl validate` shows all."""


@dataclass(frozen=True)
class Subject:
    """What the rules look at. `environment` has no fields when it is not in the catalogue."""

    run: TrainingRun
    runtime: Runtime
    catalogue: Catalogue
    environment: CatalogueEnvironment


def check_run(run: TrainingRun, runtime: Runtime, catalogue: Catalogue) -> tuple[Refusal, ...]:
    """Every reason why the run must not start, in a stable order; empty means accepted."""
    name = run.spec.environment
    environment = catalogue.by_name.get(name, CatalogueEnvironment(name=name))
    subject = Subject(run, runtime, catalogue, environment)
    return tuple(refusal for rule in _RULES for refusal in rule(subject))


def runtime_not_found(run: TrainingRun, names: Iterable[str]) -> Refusal:
    """The refusal of a run whose runtime does not exist; `names` are those that do."""
    available = sorted(names)
    listing = f"available: {', '.join(available)}" if available else "there is none yet: an administrator creates it"
    return Refusal(
        code="RuntimeNotFound",
        field="spec.runtime",
        given=shown(run.spec.runtime),
        allowed=available,
        hint=f"there is no such RLRuntime{nearest(run.spec.runtime, available)} ({listing})",
    )


def _environment(subject: Subject) -> Iterator[Refusal]:
    name, available = subject.run.spec.environment, sorted(subject.catalogue.by_name)
    if name in available:
        return
    field = "spec.environment"
    if name.startswith("own/"):
        hint = f"environments of one's own are not supported yet; bundled ones: {', '.join(available)}"
        yield Refusal(code="NotSupported", field=field, given=shown(name), allowed=available, hint=hint)
    elif name.endswith(".py"):
        hint = f"a file works in local mode only (rlctl run FILE --local); bundled ones: {', '.join(available)}"
        yield Refusal(code="NotSupported", field=field, given=shown(name), allowed=available, hint=hint)
    else:
        hint = f"there is no such environment{nearest(name, available)} (available: {', '.join(available)})"
        yield Refusal(code="UnknownEnvironment", field=field, given=shown(name), allowed=available, hint=hint)


def _fields(subject: Subject) -> Iterator[Refusal]:
    spec, runtime, environment = subject.run.spec, subject.runtime, subject.environment
    owner = f"environment {environment.name!r}"
    locked, bounds = runtime.spec.locked, runtime.spec.bounds
    given = [
        GivenField("env", name, value, runtime.metadata.name, environment.fields_by_name, locked.env, bounds.env, owner)
        for name, value in sorted(spec.config.items())
    ] + [
        GivenField(
            "tinker", name, value, runtime.metadata.name, TINKER_FIELDS, locked.tinker, bounds.tinker, "the trainer"
        )
        for name, value in sorted(spec.tinker.items())
    ]
    yield from (refusal for field in given if (refusal := refuse_field(field)) is not None)


def _inherited_bounds(subject: Subject) -> Iterator[Refusal]:
    """Bounds hold for values that the run does not set, too: an environment's own 5,000 steps are as long."""
    run, runtime = subject.run, subject.runtime
    sections = effective_sections(run, runtime, subject.environment)
    layers: tuple[tuple[str, Mapping[str, Any], Mapping[str, Any], Mapping[str, Any], Mapping[str, Bound]], ...] = (
        (SPEC_PATHS["env"], sections.env, run.spec.config, runtime.spec.locked.env, runtime.spec.bounds.env),
        (
            SPEC_PATHS["tinker"],
            sections.tinker,
            run.spec.tinker,
            runtime.spec.locked.tinker,
            runtime.spec.bounds.tinker,
        ),
    )
    for path, values, given, locked, bounds in layers:
        for name in sorted(bounds.keys() & values.keys() - given.keys() - locked.keys()):
            refusal = refuse_outside(f"{path}.{name}", values[name], bounds[name], runtime.metadata.name)
            if refusal is not None:
                yield refusal


def _shared_numbers(subject: Subject) -> Iterator[Refusal]:
    """What trainer, api and environment divide by must be there, positive, and make whole groups to a batch."""
    if subject.run.spec.environment not in subject.catalogue.by_name:
        return
    env = effective_sections(subject.run, subject.runtime, subject.environment).env
    wrong = [name for name in SHARED_NUMBERS if not _is_positive(env.get(name))]
    refused = {refusal.field for refusal in _fields(subject)}
    for name in wrong:
        if f"spec.config.{name}" not in refused:
            hint = "set it to a whole number of at least 1: neither the environment nor the runtime says one"
            yield _inconsistent(f"spec.config.{name}", env.get(name), hint)
    if not wrong and env["batch_size"] % env["group_size"]:
        batch_size, group_size = env["batch_size"], env["group_size"]
        hint = (
            f"a batch holds whole groups, and {batch_size} rollouts cannot be divided into groups of {group_size} "
            f"(group_size): set batch_size to {math.ceil(batch_size / group_size) * group_size}, say"
        )
        yield _inconsistent("spec.config.batch_size", batch_size, hint)


def _not_yet(subject: Subject) -> Iterator[Refusal]:
    """What the API knows and this release does not do; better refused than silently left undone."""
    spec, runtime = subject.run.spec, subject.runtime
    start_from = spec.start_from
    cases: tuple[tuple[bool, str, Any, str], ...] = (
        (
            start_from is not None and start_from.run is not None,
            "spec.startFrom.run",
            start_from and start_from.run,
            "copy status.weights.statePath of that run into spec.startFrom.statePath",
        ),
        (
            start_from is not None and start_from.with_optimizer,
            "spec.startFrom.withOptimizer",
            True,
            "a new run starts with a new optimizer: leave the field out",
        ),
        (
            spec.environment_replicas > 1,
            "spec.environmentReplicas",
            spec.environment_replicas,
            "one environment process per run: leave the field out",
        ),
        (
            runtime.spec.namespace_selector is not None,
            "spec.runtime",
            runtime.metadata.name,
            "the runtime has a namespaceSelector, which nothing enforces yet: choose another runtime",
        ),
    )
    for applies, field, given, hint in cases:
        if applies:
            yield Refusal(code="NotSupported", field=field, given=shown(given), hint=f"not supported yet: {hint}")


def _start_from(subject: Subject) -> Iterator[Refusal]:
    start_from = subject.run.spec.start_from
    if start_from is not None and (start_from.run is None) == (start_from.state_path is None):
        hint = "name exactly one of run and statePath"
        yield _inconsistent("spec.startFrom", start_from.to_wire(), hint)


def _limits(subject: Subject) -> Iterator[Refusal]:
    limits, spec = subject.runtime.spec.limits, subject.run.spec
    cases = (
        ("spec.activeDeadlineSeconds", spec.active_deadline_seconds, limits.active_deadline_seconds),
        ("spec.environmentReplicas", spec.environment_replicas, limits.environment_replicas),
    )
    for field, given, limit in cases:
        bound = Bound(max=limit) if limit is not None else None
        refusal = refuse_outside(field, given, bound, subject.runtime.metadata.name)
        if refusal is not None:
            yield refusal


_RULES: Final[tuple[Callable[[Subject], Iterable[Refusal]], ...]] = (
    _environment,
    _fields,
    _inherited_bounds,
    _shared_numbers,
    _start_from,
    _limits,
    _not_yet,
)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _inconsistent(field: str, given: Any, hint: str) -> Refusal:
    return Refusal(code="Inconsistent", field=field, given=shown(given), hint=hint)
