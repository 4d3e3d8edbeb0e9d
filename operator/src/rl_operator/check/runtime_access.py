"""Which namespaces may use a runtime, and which Secrets an environment may ask for."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from rl_operator.api.hints import NAMESPACE_NOT_ALLOWED
from rl_operator.api.refusal import Refusal, redacted
from rl_operator.api.runtime import LabelSelector, SecretKey
from rl_operator.check.subject import Subject

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


def _listing(secrets: Collection[SecretKey]) -> str:
    return ", ".join(f"key {secret.key} of Secret {secret.name}" for secret in secrets)
