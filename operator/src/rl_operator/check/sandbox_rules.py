"""What a run asks for of sandbox pods, against the bounds of its runtime."""

import math
from collections.abc import Iterator
from typing import Final

from rl_operator.api import hints
from rl_operator.api.refusal import Refusal, field_path, redacted
from rl_operator.api.run_inputs import Subject, field_of_rollout_seconds, rollout_seconds
from rl_operator.api.runtime import Bound
from rl_operator.api.spec_parts.container_resources import parse_quantity
from rl_operator.api.spec_parts.sandboxes import RunSandboxes, RuntimeSandboxes, sandbox_resources
from rl_operator.api.value_text import text_of
from rl_operator.check.field_rules import refusals_outside
from rl_operator.check.quantities import resource_faults, small_limits

TERMINAL_BACKEND: Final = "terminal_backend"
"""A field of all environments whose agents have tools for a sandbox, and of no others."""


def sandbox_refusals(subject: Subject) -> Iterator[Refusal]:
    asked, bounds, runtime = subject.run.spec.sandbox, subject.runtime.spec.sandbox, subject.runtime.metadata.name
    if asked is None:
        return
    if bounds is None:
        yield Refusal(code="OutOfBounds", field="spec.sandbox", hint=hints.NO_SANDBOXES % runtime)
        return
    cases = (
        ("spec.sandbox.size", asked.size, Bound(max=bounds.max_size)),
        ("spec.sandbox.timeoutSeconds", asked.timeout_seconds, Bound(max=bounds.max_timeout_seconds)),
    )
    yield from refusals_outside(cases, runtime)
    if asked.size < (replicas := subject.run.spec.environment_replicas):
        hint = f"each of {replicas} environments (spec.environmentReplicas) needs at least one: set it to {replicas}"
        yield Refusal(code="Inconsistent", field="spec.sandbox.size", given=asked.size, hint=hint)
    yield from _time(subject, asked, bounds)
    if asked.image != subject.runtime.spec.image:
        yield from _image(asked, bounds, runtime)
    yield from _resources(asked, bounds, runtime)


def _time(subject: Subject, asked: RunSandboxes, bounds: RuntimeSandboxes) -> Iterator[Refusal]:
    """A rollout that outlives its sandbox is made again, in a sandbox that ends as early."""
    env, environment = subject.sections.env, subject.environment
    field, seconds = field_of_rollout_seconds(env, environment), rollout_seconds(env, environment)
    if field is None or seconds is None or not _may_use_them(subject):
        return
    path, most, is_locked = subject.env.path(field), bounds.max_timeout_seconds, field in subject.env.locked
    if seconds > most:
        ends = f"runtime {subject.runtime.metadata.name!r} ends a sandbox after at most {most} s"
        advice = "the runtime locks it, so choose another one" if is_locked else f"set it to {most} or less"
        hint = f"{ends}, before such a rollout is over: {advice}"
        allowed = None if is_locked else {"max": most}
        yield Refusal(code="OutOfBounds", field=path, given=seconds, allowed=allowed, hint=hint)
    elif asked.timeout_seconds is not None and asked.timeout_seconds < seconds:
        least = math.ceil(seconds)
        why = f"a rollout may take {text_of(seconds)} s ({path}) and would lose its sandbox"
        ways = f"at least {least}, or leave it out" if is_locked else f"at least {least}, leave it out, or lower {path}"
        given, allowed = asked.timeout_seconds, {"min": least, "max": most}
        hint = f"{why}: set it to {ways}"
        yield Refusal(code="Inconsistent", field="spec.sandbox.timeoutSeconds", given=given, allowed=allowed, hint=hint)


def _may_use_them(subject: Subject) -> bool:
    """Whether its agent has tools that work in a sandbox. Not if that is known to be false."""
    known = subject.env.known
    return not known or TERMINAL_BACKEND in known


def _image(asked: RunSandboxes, bounds: RuntimeSandboxes, runtime: str) -> Iterator[Refusal]:
    if asked.image is None or bounds.allows(asked.image):
        return
    allowed = [*([bounds.image] if bounds.image else []), *bounds.images]
    choice = f"runtime {runtime!r} allows {', '.join(allowed)}" if allowed else f"runtime {runtime!r} allows no other"
    hint = f"{choice}: leave it out for the runtime's own, or ask an administrator to add it to spec.sandbox.images"
    field = "spec.sandbox.image"
    yield Refusal(code="OutOfBounds", field=field, given=redacted(asked.image), allowed=allowed, hint=hint)


def _resources(asked: RunSandboxes, bounds: RuntimeSandboxes, runtime: str) -> Iterator[Refusal]:
    path = ("spec", "sandbox", "resources")
    faults = tuple(resource_faults(path, asked.resources))
    yield from faults
    if faults:
        return
    most = bounds.most()
    yield from small_limits((*path, "limits"), asked.resources.limits)
    for name, limit in sorted(sandbox_resources(asked.resources, bounds).limits.items()):
        amount, allowed = parse_quantity(limit), parse_quantity(most.get(name, 0))
        if amount is not None and allowed is not None and amount > allowed:
            part = "limits" if name in asked.resources.limits else "requests"
            up_to = f"allows at most {most[name]}" if name in most else "allows none"
            field = field_path((*path, part, name))
            yield Refusal(code="OutOfBounds", field=field, given=limit, hint=f"runtime {runtime!r} {up_to}")
