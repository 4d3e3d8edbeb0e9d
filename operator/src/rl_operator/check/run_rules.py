"""Rules over the run's own fields, and over the effective values together, no matter who set them."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from rl_contract.consistency import CONFIG_RULES, REQUEST_RULES, Names, Rule, inconsistencies, some_layer
from rl_operator.api.hints import KEY_IN_RUN, NO_PRICES
from rl_operator.api.names import LAST_APPLIED_ANNOTATION, OPENENV_ENVIRONMENT, OWN_PREFIX
from rl_operator.api.refusal import Refusal, redacted, text_holds_a_key
from rl_operator.api.runtime import Bound
from rl_operator.api.sections import base_model
from rl_operator.api.settings.fields import SHARED_NUMBERS
from rl_operator.check.field_rules import field_refusals, refuse_outside
from rl_operator.check.name_lists import MOST_NAMES, unknown_environment
from rl_operator.check.subject import Subject
from rl_operator.documents.parse import field_path

NEEDS_SERVER: Final = "it plays against a server: create an RLEnvironment with spec.openenv, and name it as own/NAME"


SECTIONS: Final = Names(env="spec.config", tinker="spec.tinker")
RULES: Final = tuple(rule for rule in (*CONFIG_RULES, *REQUEST_RULES) if rule is not some_layer)
"""Those that need the shared fields."""


def environment_refusals(subject: Subject) -> Iterator[Refusal]:
    chosen = subject.inputs.environment
    if chosen.known is not None or chosen.pending is not None:
        return
    name, available = subject.run.spec.environment, list(chosen.available)
    choice, allowed = unknown_environment(name, available)
    stalled = chosen.own.status.condition("Stalled") if chosen.own else None
    if stalled is not None:
        code, hint = "EnvironmentNotReady", stalled.message
    elif name.startswith(OWN_PREFIX):
        code = "UnknownEnvironment"
        own, namespace = name.removeprefix(OWN_PREFIX), subject.run.metadata.namespace
        hint = f"there is no RLEnvironment {own!r} in {namespace}: create it"
    elif name.endswith(".py"):
        code = "UnknownEnvironment"
        hint = "files are for local mode: make an RLEnvironment of it (own/NAME), as rlctl init --from FILE.py does"
    elif name == OPENENV_ENVIRONMENT:
        code, hint = "UnknownEnvironment", NEEDS_SERVER
    elif chosen.absence is not None:
        code, hint = "UnknownEnvironment", chosen.absence
    else:
        code, hint = "UnknownEnvironment", f"there is no such environment{choice}"
    yield Refusal.model_validate(
        {
            "code": code,
            "field": "spec.environment",
            "given": redacted(name),
            "allowed": allowed[:MOST_NAMES],
            "hint": hint,
        }
    )


def pasted_key_refusals(subject: Subject) -> Iterator[Refusal]:
    """Keys in what is neither checked by a field's type nor passed on to a process: it is shown to everybody."""
    wandb, metadata = subject.run.spec.wandb.to_wire(), subject.run.metadata
    places = {
        "spec.wandb": wandb,
        "metadata.annotations": {n: v for n, v in metadata.annotations.items() if n != LAST_APPLIED_ANNOTATION},
        "metadata.labels": metadata.labels,
    }
    for place, texts in places.items():
        for name in sorted(name for name, text in texts.items() if text_holds_a_key(text)):
            yield Refusal(code="WiredField", field=field_path((*place.split("."), name)), hint=KEY_IN_RUN)


def limit_refusals(subject: Subject) -> Iterator[Refusal]:
    limits, spec = subject.runtime.spec.limits, subject.run.spec
    cases = (
        ("spec.activeDeadlineSeconds", spec.active_deadline_seconds, limits.active_deadline_seconds),
        ("spec.environmentReplicas", spec.environment_replicas, limits.environment_replicas),
    )
    for field, given, limit in cases:
        refusal = refuse_outside(field, given, Bound(max=limit), subject.runtime.metadata.name)
        if refusal is not None:
            yield refusal


def budget_refusals(subject: Subject) -> Iterator[Refusal]:
    """Without prices, nobody knows when a budget is spent."""
    budget, prices = subject.run.spec.budget, subject.runtime.spec.backend.prices
    if budget is None or not subject.environment_exists:
        return
    model = base_model(subject.sections.env, subject.sections.openai)
    if prices is None:
        yield _inconsistent("spec.budget", budget, NO_PRICES % subject.runtime.metadata.name)
    elif prices.of_model(model) is None:
        hint = (
            f"the runtime's spec.backend.prices has none for the model {model}, so nobody knows when a budget is "
            f"spent: leave it out, or have an administrator add them to spec.backend.prices.models"
        )
        yield _inconsistent("spec.budget", budget, hint)


def inherited_bound_refusals(subject: Subject) -> Iterator[Refusal]:
    """Bounds also hold for values that the run does not set: an environment's own 5,000 steps are just as long."""
    for section in (subject.env, subject.tinker):
        inherited = {n: v for n, v in section.in_force.items() if n not in section.given and n not in section.locked}
        for name in sorted(section.bounds.keys() & inherited.keys()):
            refusal = refuse_outside(section.path(name), inherited[name], section.bounds[name], section.runtime)
            if refusal is not None:
                yield refusal


def shared_field_refusals(subject: Subject) -> Iterator[Refusal]:
    """Fields that trainer, api and environment all read must be present and consistent."""
    if not subject.environment_exists:
        return
    env = subject.sections.env
    missing = {name: "a whole number of at least 1" for name in SHARED_NUMBERS if not _is_positive(env.get(name))}
    if not isinstance(env.get("tokenizer_name"), str) or not env["tokenizer_name"]:
        missing["tokenizer_name"] = "the name of a tokenizer"
    refused = {refusal.field for refusal in field_refusals(subject)} if missing else set()
    for name, needed in missing.items():
        if subject.env.path(name) not in refused:
            hint = f"set it to {needed}: neither the environment nor the runtime says one"
            yield _inconsistent(subject.env.path(name), env.get(name), hint)
    if not missing:
        yield from _together(subject, RULES)


def adapter_refusals(subject: Subject) -> Iterator[Refusal]:
    """Whatever else is missing."""
    yield from _together(subject, [some_layer])


def _together(subject: Subject, rules: Iterable[Rule]) -> Iterator[Refusal]:
    for found in inconsistencies(subject.sections.env, subject.tinker.in_force, rules):
        section = subject.env if found.section == "env" else subject.tinker
        yield _inconsistent(section.path(found.field), found.value, found.told(SECTIONS))


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _inconsistent(field: str, given: Any, hint: str) -> Refusal:
    return Refusal(code="Inconsistent", field=field, given=redacted(given), hint=hint)
