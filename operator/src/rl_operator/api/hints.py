"""Hints that the operator's check shares with what the API server enforces (CRD rules, admission policies)."""

from typing import Final

FROZEN: Final = "it is frozen since the run started: make a new run for other settings"

NAMESPACE_NOT_ALLOWED: Final = (
    "its namespaceSelector does not match the labels of this run's namespace: "
    "choose another runtime, or ask an administrator for access"
)

KEY_IN_RUN: Final = (
    "this looks like a key, and a run must not contain one: put it into a Secret, and ask an administrator to list it "
    "in the runtime's secretEnvironment"
)

NESTED: Final = "the field is nested: write it as {%s: {%s: …}}"

# Templates whose `%s` Python's `%` and CEL's `format` fill alike. A runtime's name contains no quotes.
LOCKED: Final = "runtime '%s' locks it to %s: leave it out, or choose another runtime"
NO_SANDBOXES: Final = "runtime '%s' has no sandboxes (its spec.sandbox): leave it out, or choose another runtime"
NO_TEACHER: Final = (
    "runtime '%s' has no teacher (its spec.teacher; in local mode the variable TEACHER_URL, http:// or https://): "
    "leave it out, or choose another runtime"
)
KEYED_TEACHER: Final = (
    "the teacher of runtime '%s' has a key, which code or a command of your own could read, and its "
    "spec.teacher.ownEnvironments does not allow that: leave it out, or ask an administrator"
)
NO_PRICES: Final = (
    "runtime '%s' has no prices (its spec.backend.prices), and without them nobody knows when a budget is spent: leave "
    "it out, or choose another runtime"
)
OTHER_CURRENCY: Final = (
    "the prices of runtime '%s' (its spec.backend.prices) are in %s: give the budget in that currency"
)
ALLOWS: Final = "runtime '%s' allows %s"
MUST_BE: Final = "it must be %s"
AT_LEAST: Final = "at least %s"
AT_MOST: Final = "at most %s"
ABOVE: Final = "above %s"
AND: Final = " and "
UNKNOWN_NUMBER: Final = ", and what auto comes to is known only once the run has started: give a number"
