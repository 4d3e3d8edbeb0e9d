"""Rules over the run's own fields, and over the effective values together, no matter who set them."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rl_operator.api.hints import KEY_IN_RUN, NO_PRICES
from rl_operator.api.names import LAST_APPLIED_ANNOTATION, OPENENV_ENVIRONMENT, OWN_PREFIX
from rl_operator.api.refusal import Refusal, redacted, text_holds_a_key
from rl_operator.api.runtime import Bound
from rl_operator.api.sections import base_model
from rl_operator.api.settings.fields import LORA_LAYERS, SHARED_NUMBERS
from rl_operator.check.field_rules import field_refusals, refuse_outside
from rl_operator.check.name_lists import MOST_NAMES, unknown_environment
from rl_operator.check.subject import Subject
from rl_operator.documents.parse import field_path

NEEDS_SERVER: Final = "it plays against a server: create an RLEnvironment with spec.openenv, and name it as own/NAME"


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
        yield from _batch(env["batch_size"], env["group_size"])
        yield from _group(env, subject.tinker.in_force.get("advantage"))
        yield from _early_stop(subject, env.get("steps_per_eval"))
        yield from _teacher(subject, env)
        yield from _lengths(env["max_token_length"], subject.tinker.in_force["max_token_trainer_length"])
        yield from _substeps(env["batch_size"] // env["group_size"], subject.tinker.in_force["num_substeps"])


def adapter_refusals(subject: Subject) -> Iterator[Refusal]:
    """The trainer says the same (`RunConfig` of tinker_atropos), only later."""
    if not any(subject.tinker.in_force[name] for name in LORA_LAYERS):
        yield _inconsistent(
            "spec.tinker.train_attn",
            False,
            f"{', '.join(LORA_LAYERS)} are all false, and nothing would be trained: set one of them to true",
        )


def _batch(batch_size: int, group_size: int) -> Iterator[Refusal]:
    if batch_size % group_size:
        hint = (
            f"a batch holds whole groups, and {batch_size} rollouts cannot be divided into groups of {group_size} "
            f"(group_size): set batch_size to {math.ceil(batch_size / group_size) * group_size}, say"
        )
        yield _inconsistent("spec.config.batch_size", batch_size, hint)


def _early_stop(subject: Subject, steps_per_eval: Any) -> Iterator[Refusal]:
    """Without evaluations nothing tells when to stop."""
    stop_at, patience = (subject.tinker.in_force.get(name) for name in ("stop_at", "patience"))
    for name, value in (("stop_at", stop_at), ("patience", patience or None)):
        if steps_per_eval == 0 and value is not None:
            hint = (
                f"the run has no evaluations that could end it, because steps_per_eval is 0: set "
                f"{subject.env.path('steps_per_eval')} to 1 or more, or leave {name} out"
            )
            yield _inconsistent(subject.tinker.path(name), value, hint)


def _teacher(subject: Subject, env: Mapping[str, Any]) -> Iterator[Refusal]:
    """The environment says the same, only later."""
    top_k, url = env.get("teacher_top_k"), env.get("teacher_url")
    if top_k and not url:
        hint = "no teacher_url says where the teacher is served: set it, or leave teacher_top_k out"
        yield _inconsistent(subject.env.path("teacher_top_k"), top_k, hint)
    if url and not top_k:
        hint = (
            "the teacher is not asked, because teacher_top_k is 0: set it to 20, say, or to 1 to score sampled tokens"
        )
        yield _inconsistent(subject.env.path("teacher_url"), url, hint)


def _group(env: Mapping[str, Any], advantage: Any) -> Iterator[Refusal]:
    """Whoever lets groups of equal scores through has another signal than their advantages, such as a teacher's."""
    if env["group_size"] == 1 and env.get("ensure_scores_are_not_same", True) and not env.get("teacher_top_k"):
        hint = (
            f"an advantage ({advantage}) compares the rollouts of a group, and in a group of one there is nothing to "
            f"compare: set it to 2 or more"
        )
        yield _inconsistent("spec.config.group_size", 1, hint)


def _lengths(rollout: int, trained: Any) -> Iterator[Refusal]:
    """Upstream drops longer rollouts with no more than a warning: a run could go on forever without a batch."""
    if _is_positive(trained) and rollout > trained:
        hint = (
            f"rollouts of up to {rollout} tokens would be dropped, because the trainer takes {trained} "
            f"(max_token_trainer_length): lower it, or raise spec.tinker.max_token_trainer_length"
        )
        yield _inconsistent("spec.config.max_token_length", rollout, hint)


def _substeps(groups: int, substeps: Any) -> Iterator[Refusal]:
    if _is_positive(substeps) and substeps > max(groups, 1):
        hint = (
            f"a batch holds {groups} groups (batch_size / group_size), and each optimizer step needs one: lower it, or "
            f"raise spec.config.batch_size"
        )
        yield _inconsistent("spec.tinker.num_substeps", substeps, hint)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _inconsistent(field: str, given: Any, hint: str) -> Refusal:
    return Refusal(code="Inconsistent", field=field, given=redacted(given), hint=hint)
