"""Rules over the values in force, whoever set them."""

import math
from collections.abc import Iterator
from typing import Any

from rl_operator.api.fields import SHARED_NUMBERS
from rl_operator.api.refusal import Refusal, redacted
from rl_operator.check.field_rules import field_refusals, refuse_outside
from rl_operator.check.subject import Subject


def inherited_bound_refusals(subject: Subject) -> Iterator[Refusal]:
    """Bounds hold for values that the run does not set, too: an environment's own 5,000 steps are as long."""
    for section in (subject.env, subject.tinker):
        inherited = {n: v for n, v in section.in_force.items() if n not in section.given and n not in section.locked}
        for name in sorted(section.bounds.keys() & inherited.keys()):
            refusal = refuse_outside(section.path(name), inherited[name], section.bounds[name], section.runtime)
            if refusal is not None:
                yield refusal


def shared_field_refusals(subject: Subject) -> Iterator[Refusal]:
    """What trainer, api and environment all read must be there and fit together."""
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
        yield from _lengths(env["max_token_length"], subject.tinker.in_force["max_token_trainer_length"])


def _batch(batch_size: int, group_size: int) -> Iterator[Refusal]:
    if batch_size % group_size:
        hint = (
            f"a batch holds whole groups, and {batch_size} rollouts cannot be divided into groups of {group_size} "
            f"(group_size): set batch_size to {math.ceil(batch_size / group_size) * group_size}, say"
        )
        yield _inconsistent("spec.config.batch_size", batch_size, hint)


def _lengths(rollout: int, trained: Any) -> Iterator[Refusal]:
    """Upstream drops longer rollouts with no more than a warning: a run could go on forever without a batch."""
    if _is_positive(trained) and rollout > trained:
        hint = (
            f"rollouts of up to {rollout} tokens would be dropped, because the trainer takes {trained} "
            f"(max_token_trainer_length): lower it, or raise spec.tinker.max_token_trainer_length"
        )
        yield _inconsistent("spec.config.max_token_length", rollout, hint)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _inconsistent(field: str, given: Any, hint: str) -> Refusal:
    return Refusal(code="Inconsistent", field=field, given=redacted(given), hint=hint)
