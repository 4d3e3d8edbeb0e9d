"""An RLRuntime against itself: settings that no run could work with, or that do not do what they seem to do."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any, Final

from rl_operator.api import hints
from rl_operator.api.refusal import Refusal, RefusalCode, field_path, first_refusals, looks_like_a_key, redacted
from rl_operator.api.runtime import (
    ALL_PRICES,
    RESERVED_VARIABLES,
    SOME_PRICES,
    TEACHER_VARIABLES,
    TRAINER_KEYS,
    Bound,
    Runtime,
)
from rl_operator.api.settings.fields import TRAINER_FIELDS, WIRED_FIELDS, Section, flattened, outer_names, steps_of
from rl_operator.api.spec_parts.rollout_sinks import ONE_AUTHORITY, ONE_SINK
from rl_operator.api.value_text import text_of
from rl_operator.check.field_rules import nested_hint, refuse_outside, value_problem
from rl_operator.check.quantities import quantity_faults, resource_faults, small_limits
from rl_operator.documents.parse import nearest

_SECTIONS: Final[tuple[Section, ...]] = ("env", "openai", "trainer")


@dataclass(frozen=True)
class _SetValue:
    """One value of `spec.locked` or `spec.defaults`."""

    runtime: Runtime
    part: str
    section: Section
    name: str
    """Of the field; one inside of a mapping that the bounds speak of by its name is looked at by itself."""

    value: Any

    @property
    def path(self) -> str:
        outer = outer_names(_names(self.runtime, self.section)) if self.part != "bounds" else ()
        return field_path(("spec", self.part, self.section, *steps_of(self.name, outer)))

    def refuse(self, code: RefusalCode, hint: str) -> Refusal:
        return Refusal(code=code, field=self.path, given=redacted(self.value, self.name), hint=hint)


def check_runtime(runtime: Runtime) -> tuple[Refusal, ...]:
    """The faults of the spec, in a stable order; empty means valid. Fields are paths in the RLRuntime."""
    return first_refusals(fault for rule in _RULES for fault in rule(runtime))


def _values(runtime: Runtime) -> Iterator[Refusal]:
    """At most one fault per value."""
    for part in ("locked", "defaults"):
        for section in _SECTIONS:
            written = getattr(getattr(runtime.spec, part), section)
            yield from _dotted(part, section, written)
            for name, value in sorted(flattened(written, _names(runtime, section)).items()):
                at = _SetValue(runtime, part, section, name, value)
                faults = (rule(at) for rule in _VALUE_RULES)
                fault = next((fault for fault in faults if fault is not None), None)
                if fault is not None:
                    yield fault


def _bounds_of(runtime: Runtime, section: Section) -> Mapping[str, Bound]:
    found: Mapping[str, Bound] = getattr(runtime.spec.bounds, section, {})
    return found


def _names(runtime: Runtime, section: Section) -> Collection[str]:
    """Names of the trainer's fields, or of those that the bounds speak of: a runtime does not know its environments."""
    return TRAINER_FIELDS.keys() if section == "trainer" else _bounds_of(runtime, section).keys()


def _dotted(part: str, section: Section, written: Mapping[str, object]) -> Iterator[Refusal]:
    """A listing's name of a nested field: in a config file no name of a field has a dot."""
    for name in sorted(name for name in written if "." in name):
        hint = nested_hint(name.split(".", 1))
        yield Refusal(code="UnknownField", field=field_path(("spec", part, section, name)), hint=hint)


def _bounds(runtime: Runtime) -> Iterator[Refusal]:
    for section in ("env", "trainer"):
        for name, bound in sorted(getattr(runtime.spec.bounds, section).items()):
            at = _SetValue(runtime, "bounds", section, name, bound.to_wire())
            if fault := _wired(at) or _unknown(at):
                yield fault
            elif bound.min is not None and bound.max is not None and bound.min > bound.max:
                range_ = f"at least {text_of(bound.min)} and at most {text_of(bound.max)}"
                yield at.refuse("Inconsistent", f"no value is {range_}: correct one of them")


def _wired(at: _SetValue) -> Refusal | None:
    if (at.section, at.name) not in WIRED_FIELDS:
        return None
    hint = "the operator sets it itself, and a value here has no effect: leave it out"
    return at.refuse(
        "WiredField", f"{hint} (spec.backend, spec.teacher and spec.wandb say where a run trains, learns and reports)"
    )


def _key(at: _SetValue) -> Refusal | None:
    if not looks_like_a_key(at.value):
        return None
    return at.refuse("WiredField", "this looks like a key, and a runtime is read by everybody: put it into a Secret")


def _unknown(at: _SetValue) -> Refusal | None:
    if at.section != "trainer" or at.name in TRAINER_FIELDS:
        return None
    return at.refuse("UnknownField", f"the trainer has no such field{nearest(at.name, TRAINER_FIELDS)}")


def _no_such_value(at: _SetValue) -> Refusal | None:
    known = TRAINER_FIELDS[at.name] if at.section == "trainer" else None
    problem = value_problem(at.section, at.name, at.value, known)
    return at.refuse(problem[0], hints.MUST_BE % problem[1]) if problem else None


def _out_of_bounds(at: _SetValue) -> Refusal | None:
    bound = _bounds_of(at.runtime, at.section).get(at.name)
    return refuse_outside(at.path, at.value, bound, at.runtime.metadata.name)


_VALUE_RULES: Final[tuple[Callable[[_SetValue], Refusal | None], ...]] = (
    _wired,
    _key,
    _unknown,
    _no_such_value,
    _out_of_bounds,
)


def _batch(runtime: Runtime) -> Iterator[Refusal]:
    locked = runtime.spec.locked.env
    batch, group = locked.get("batch_size"), locked.get("group_size")
    if isinstance(batch, int) and isinstance(group, int) and group > 0 and batch % group:
        hint = f"a batch holds whole groups, and group_size is locked to {group}: lock batch_size to a multiple of it"
        yield Refusal(code="Inconsistent", field="spec.locked.env.batch_size", given=batch, hint=hint)


def _secrets(runtime: Runtime) -> Iterator[Refusal]:
    """An environment never gets the trainer's keys, whatever they are called; and no key is one of our variables."""
    spec = runtime.spec
    own = [secret for secret in (spec.backend.key_secret, spec.wandb.key_secret) if secret is not None]
    store = spec.rollouts.object_store.secret_name if spec.rollouts and spec.rollouts.object_store else None
    taught = spec.teacher.key_secret if spec.teacher else None
    variables: set[str] = set()
    for number, secret in enumerate(spec.secret_environment):
        twice, variables = secret.key in variables, variables | {secret.key}
        if secret.key in TRAINER_KEYS or secret in own or secret.name == store:
            hint = "this key is the trainer's and never goes to an environment: take it out of the list"
        elif secret.key in TEACHER_VARIABLES or secret == taught:
            hint = (
                "a teacher's key goes nowhere but to its address: take it out of the list, and name it in spec.teacher"
            )
        elif re.search(RESERVED_VARIABLES, secret.key):
            hint = "a variable of this name says how the container runs: give the key another name"
        elif twice:
            hint = "another Secret of the list has a key of this name, and both would be one variable: rename one"
        else:
            continue
        field = f"spec.secretEnvironment[{number}]"
        yield Refusal(code="SecretNotAllowed", field=field, given=f"{secret.name}/{secret.key}", hint=hint)


def _selector(runtime: Runtime) -> Iterator[Refusal]:
    """The API server checks this, too; files that only local mode reads are checked nowhere else."""
    selector = runtime.spec.namespace_selector
    for number, requirement in enumerate(selector.match_expressions if selector else ()):
        if (requirement.operator in ("In", "NotIn")) != bool(requirement.values):
            field = f"spec.namespaceSelector.matchExpressions[{number}]"
            hint = "In and NotIn take at least one value, Exists and DoesNotExist none"
            yield Refusal(code="Inconsistent", field=field, given=requirement.to_wire(), hint=hint)


def _egress(runtime: Runtime) -> Iterator[Refusal]:
    for number, rule in enumerate(runtime.spec.environment_egress):
        try:
            ip_network(rule.cidr, strict=False)
        except ValueError:
            field, hint = f"spec.environmentEgress[{number}].cidr", "it must be a range like 203.0.113.0/24"
            yield Refusal(code="WrongType", field=field, given=redacted(rule.cidr), hint=hint)


def _resources(runtime: Runtime) -> Iterator[Refusal]:
    for name, container in runtime.spec.resources:
        yield from resource_faults(("spec", "resources", name), container)


def _sandbox(runtime: Runtime) -> Iterator[Refusal]:
    if runtime.spec.sandbox is not None:
        path, most = ("spec", "sandbox", "maxResources"), runtime.spec.sandbox.max_resources
        faults = tuple(quantity_faults(path, most))
        yield from faults or small_limits(path, most)


def _rollouts(runtime: Runtime) -> Iterator[Refusal]:
    """The API server checks this, too: see `_selector`."""
    sinks = runtime.spec.rollouts
    if sinks and (sinks.persistent_volume_claim is None) == (sinks.object_store is None):
        yield Refusal(code="Inconsistent", field="spec.rollouts", given=sinks.to_wire(), hint=ONE_SINK)
    authority = sinks.object_store.certificate_authority if sinks and sinks.object_store else None
    if authority and (authority.config_map is None) == (authority.secret is None):
        field = "spec.rollouts.objectStore.certificateAuthority"
        yield Refusal(code="Inconsistent", field=field, given=authority.to_wire(), hint=ONE_AUTHORITY)


def _prices(runtime: Runtime) -> Iterator[Refusal]:
    """The API server checks this, too: see `_selector`."""
    prices = runtime.spec.backend.prices
    if prices is None:
        return
    given = [price is not None for price in (prices.prefill, prices.sample, prices.train)]
    if any(given) and not all(given):
        yield Refusal(code="Inconsistent", field="spec.backend.prices", given=prices.to_wire(), hint=ALL_PRICES)
    elif not any(given) and not prices.models:
        yield Refusal(code="Inconsistent", field="spec.backend.prices", given=prices.to_wire(), hint=SOME_PRICES)


_RULES: Final[tuple[Callable[[Runtime], Iterator[Refusal]], ...]] = (
    _values,
    _bounds,
    _batch,
    _secrets,
    _selector,
    _egress,
    _resources,
    _sandbox,
    _rollouts,
    _prices,
)
