"""Rules over the run's own fields."""

import json
from collections.abc import Iterator
from typing import Final

from rl_operator.api.names import OWN_PREFIX
from rl_operator.api.refusal import Refusal, redacted
from rl_operator.api.runtime import Bound
from rl_operator.check.field_rules import refuse_outside
from rl_operator.check.name_lists import MOST_NAMES, listed
from rl_operator.check.subject import Subject
from rl_operator.documents.parse import nearest

MAX_SETTINGS_BYTES: Final = 200_000
"""Of `spec.config` and of `spec.tinker`, as JSON."""


def environment_refusals(subject: Subject) -> Iterator[Refusal]:
    chosen = subject.inputs.environment
    if chosen.known is not None or chosen.pending is not None:
        return
    name, available = subject.run.spec.environment, list(chosen.available)
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
    else:
        code = "UnknownEnvironment"
        hint = f"there is no such environment{nearest(name, available)} (available: {listed(available) or 'none'})"
    yield Refusal.model_validate(
        {
            "code": code,
            "field": "spec.environment",
            "given": redacted(name),
            "allowed": available[:MOST_NAMES],
            "hint": hint,
        }
    )


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


def size_refusals(subject: Subject) -> Iterator[Refusal]:
    """A run's ConfigMap holds its settings as YAML, beside the templates of its pods, and has room for 1 MiB."""
    spec = subject.run.spec
    for name, settings in (("config", spec.config), ("tinker", spec.tinker)):
        size = len(json.dumps(settings))
        if size > MAX_SETTINGS_BYTES:
            hint = f"it takes {size // 1000} kB, and at most {MAX_SETTINGS_BYTES // 1000} kB are allowed: shorten it"
            yield Refusal(code="OutOfBounds", field=f"spec.{name}", allowed=MAX_SETTINGS_BYTES, hint=hint)
