"""One run against its inputs: what no smaller module checks, and all checks in their order (`check_run`, at the end).

Which environment, namespace and Secrets it may use, its limits and budget, and whether its sections fit together.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, Generic, TypeVar

from rl_contract.consistency import CONFIG_RULES, REQUEST_RULES, Names, Rule, inconsistencies, some_layer
from rl_operator.api.hints import (
    KEY_IN_RUN,
    KEYED_TEACHER,
    NAMESPACE_NOT_ALLOWED,
    NO_PRICES,
    NO_TEACHER,
    OTHER_CURRENCY,
)
from rl_operator.api.names import LAST_APPLIED_ANNOTATION, OPENENV_ENVIRONMENT, OWN_PREFIX
from rl_operator.api.refusal import Refusal, RefusalCode, field_path, first_refusals, redacted, text_holds_a_key
from rl_operator.api.run_inputs import TEACHER_TOP_K, RunInputs, Subject, base_model
from rl_operator.api.runtime import Bound, LabelSelector, Runtime, SecretKey
from rl_operator.api.settings.fields import SHARED_NUMBERS
from rl_operator.api.training_run import TrainingRun
from rl_operator.check.field_rules import field_refusals, refusals_outside
from rl_operator.check.lineage import lineage_refusals
from rl_operator.check.name_lists import MOST_NAMES, listed, unknown_environment
from rl_operator.check.runtime_rules import check_runtime
from rl_operator.check.sandbox_rules import sandbox_refusals
from rl_operator.documents.parse import nearest

Model = TypeVar("Model")


@dataclass(frozen=True, slots=True, eq=False)
class Same(Generic[Model]):
    """Equal only to what holds the very same object: an argument for functions with an `lru_cache`."""

    model: Model

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.model is self.model

    def __hash__(self) -> int:
        return id(self.model)


def runtime_invalid(run: TrainingRun, fault: Refusal) -> Refusal:
    """The refusal of a run whose runtime is invalid; `fault` is the first one found in it."""
    hint = f"this RLRuntime cannot be used until an administrator fixes it: {fault.sentence}"
    return Refusal(code="RuntimeInvalid", field="spec.runtime", given=redacted(run.spec.runtime), hint=hint)


def runtime_not_found(run: TrainingRun, names: Iterable[str]) -> Refusal:
    """The refusal of a run whose runtime does not exist; `names` are those that do."""
    available = sorted(names)
    listing = f"available: {listed(available)}" if available else "there is none yet: an administrator creates it"
    return Refusal(
        code="RuntimeNotFound",
        field="spec.runtime",
        given=redacted(run.spec.runtime),
        allowed=available[:MOST_NAMES],
        hint=f"there is no such RLRuntime{nearest(run.spec.runtime, available)} ({listing})",
    )


Labels = Mapping[str, str]

_OPERATORS: Final[Mapping[str, Callable[[Labels, str, Collection[str]], bool]]] = {
    "In": lambda labels, key, values: key in labels and labels[key] in values,
    "NotIn": lambda labels, key, values: key not in labels or labels[key] not in values,
    "Exists": lambda labels, key, _: key in labels,
    "DoesNotExist": lambda labels, key, _: key not in labels,
}
"""As in Kubernetes: NotIn holds if the label is missing."""


def selects(selector: LabelSelector, labels: Labels) -> bool:
    """Whether a Kubernetes label selector matches an object with these labels."""
    equal = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return equal and all(_OPERATORS[e.operator](labels, e.key, e.values) for e in selector.match_expressions)


def namespace_refusals(subject: Subject) -> Iterator[Refusal]:
    selector = subject.runtime.spec.namespace_selector
    if selector is not None and not selects(selector, subject.inputs.namespace_labels):
        yield Refusal(
            code="NamespaceNotAllowed",
            field="spec.runtime",
            given=redacted(subject.run.spec.runtime),
            allowed=selector.to_wire(),
            hint=NAMESPACE_NOT_ALLOWED,
        )


def secret_refusals(subject: Subject) -> Iterator[Refusal]:
    """A user's own environment gets the keys that it asks for, and only those that the runtime lists."""
    own, listed = subject.inputs.environment.own, subject.runtime.spec.secret_environment
    unlisted = [secret for secret in own.spec.secret_environment if secret not in listed] if own else []
    if unlisted:
        runtime = subject.runtime.metadata.name
        hint = (
            f"its secretEnvironment asks for {_listing(unlisted)}, and runtime {runtime!r} lists "
            f"{_listing(listed) or 'no key'}: take it out of the RLEnvironment, or ask an administrator to list it"
        )
        yield Refusal(
            code="SecretNotAllowed",
            field="spec.environment",
            given=redacted(subject.run.spec.environment),
            allowed=[secret.to_wire() for secret in listed],
            hint=hint,
        )


def teacher_refusals(subject: Subject) -> Iterator[Refusal]:
    top_k, runtime = subject.env.in_force.get(TEACHER_TOP_K), subject.runtime
    teacher, own_code = runtime.spec.teacher, subject.inputs.environment.runs_own_code
    if not top_k or (teacher and not (own_code and teacher.key_secret and not teacher.own_environments)):
        return
    hint = (KEYED_TEACHER if teacher else NO_TEACHER) % runtime.metadata.name
    field = subject.env.path(TEACHER_TOP_K)
    yield Refusal(code="Inconsistent", field=field, given=redacted(top_k), allowed=0, hint=hint)


def _listing(secrets: Collection[SecretKey]) -> str:
    return ", ".join(f"key {secret.key} of Secret {secret.name}" for secret in secrets)


NEEDS_SERVER: Final = "it plays against a server: create an RLEnvironment with spec.openenv, and name it as own/NAME"


SECTIONS: Final = Names(env="spec.config", trainer="spec.trainer")
RULES: Final = tuple(rule for rule in (*CONFIG_RULES, *REQUEST_RULES) if rule is not some_layer)
"""Those that need the shared fields."""


def environment_refusals(subject: Subject) -> Iterator[Refusal]:
    chosen = subject.inputs.environment
    if chosen.known is not None or chosen.pending is not None:
        return
    name, available = subject.run.spec.environment, list(chosen.available)
    choice, allowed = unknown_environment(name, available)
    stalled = chosen.own.status.condition("Stalled") if chosen.own else None
    code: RefusalCode = "UnknownEnvironment"
    if stalled is not None:
        code, hint = "EnvironmentNotReady", stalled.message
    elif name.startswith(OWN_PREFIX):
        own, namespace = name.removeprefix(OWN_PREFIX), subject.run.metadata.namespace
        hint = f"there is no RLEnvironment {own!r} in {namespace}: create it"
    elif name.endswith(".py"):
        hint = "files are for local mode: make an RLEnvironment of it (own/NAME), as rlctl init --from FILE.py does"
    elif name == OPENENV_ENVIRONMENT:
        hint = NEEDS_SERVER
    elif chosen.absence is not None:
        hint = chosen.absence
    else:
        hint = f"there is no such environment{choice}"
    yield Refusal(code=code, field="spec.environment", given=redacted(name), allowed=allowed[:MOST_NAMES], hint=hint)


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
        ("spec.activeDeadlineSeconds", spec.active_deadline_seconds, Bound(max=limits.active_deadline_seconds)),
        ("spec.environmentReplicas", spec.environment_replicas, Bound(max=limits.environment_replicas)),
        ("spec.priority", spec.priority, Bound(max=limits.max_priority)),
    )
    yield from refusals_outside(cases, subject.runtime.metadata.name)


def budget_refusals(subject: Subject) -> Iterator[Refusal]:
    """Without prices in its currency, nobody knows when a budget is spent."""
    budget, prices = subject.run.spec.budget, subject.runtime.spec.backend.prices
    if budget is None or not subject.environment_exists:
        return
    model = base_model(subject.sections.env, subject.sections.openai)
    if prices is None:
        yield _inconsistent("spec.budget", None, NO_PRICES % subject.runtime.metadata.name)
    elif prices.of_model(model) is None:
        hint = (
            f"the runtime's spec.backend.prices has none for the model {model}, so nobody knows when a budget is "
            f"spent: leave it out, or have an administrator add them to spec.backend.prices.models"
        )
        yield _inconsistent("spec.budget", None, hint)
    elif budget.currency != prices.currency:
        yield Refusal(
            code="Inconsistent",
            field="spec.budget.currency",
            given=budget.currency,
            allowed=prices.currency,
            hint=OTHER_CURRENCY % (subject.runtime.metadata.name, prices.currency),
        )


def inherited_bound_refusals(subject: Subject) -> Iterator[Refusal]:
    """Bounds also hold for values that the run does not set: an environment's own 5,000 steps are just as long."""
    for section in (subject.env, subject.trainer):
        inherited = {n: v for n, v in section.in_force.items() if n not in section.given and n not in section.locked}
        names = sorted(section.bounds.keys() & inherited.keys())
        cases = ((section.path(name), inherited[name], section.bounds[name]) for name in names)
        yield from refusals_outside(cases, section.runtime)


def shared_field_refusals(subject: Subject) -> Iterator[Refusal]:
    """Fields that trainer, api and environment all read must be present and consistent."""
    if not subject.environment_exists:
        return
    env = subject.sections.env
    missing = {name: "an integer of at least 1" for name in SHARED_NUMBERS if not _is_positive(env.get(name))}
    if not isinstance(env.get("tokenizer_name"), str) or not env["tokenizer_name"]:
        missing["tokenizer_name"] = "the name of a tokenizer"
    refused = {refusal.field for refusal in field_refusals(subject)} if missing else set()
    for name, needed in missing.items():
        if subject.env.path(name) not in refused:
            hint = f"set it to {needed}: neither the environment nor the runtime says one"
            yield _inconsistent(subject.env.path(name), env.get(name), hint)
    if not missing:
        yield from _together(subject, RULES)


def _together(subject: Subject, rules: Iterable[Rule]) -> Iterator[Refusal]:
    for found in inconsistencies(subject.sections.env, subject.trainer.in_force, rules):
        section = subject.env if found.section == "env" else subject.trainer
        yield _inconsistent(section.path(found.field), found.value, found.told(SECTIONS))


def _is_positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _inconsistent(field: str, given: object, hint: str) -> Refusal:
    return Refusal(code="Inconsistent", field=field, given=redacted(given), hint=hint)


_RULES: Final[tuple[Callable[[Subject], Iterable[Refusal]], ...]] = (
    environment_refusals,
    field_refusals,
    inherited_bound_refusals,
    shared_field_refusals,
    partial(_together, rules=[some_layer]),  # whatever else is missing
    lineage_refusals,
    namespace_refusals,
    secret_refusals,
    teacher_refusals,
    limit_refusals,
    budget_refusals,
    sandbox_refusals,
    pasted_key_refusals,
)


def check_run(run: TrainingRun, inputs: RunInputs) -> tuple[Refusal, ...]:
    """Why the run must not start, in a stable order: at most `MAX_REFUSALS` reasons; empty means accepted."""
    if faults := _runtime_faults(Same(inputs.runtime)):
        return (runtime_invalid(run, faults[0]),)
    subject = Subject(run, inputs)
    return first_refusals(refusal for rule in _RULES for refusal in rule(subject))


@lru_cache(maxsize=64)
def _runtime_faults(runtime: Same[Runtime]) -> tuple[Refusal, ...]:
    """The same for all of its runs."""
    return check_runtime(runtime.model)
