"""Hints that the operator's check shares with what the API server enforces (CRD rules, admission policies)."""

from typing import Final

FROZEN: Final = "it is frozen since the run started: make a new run for other settings"

NAMESPACE_NOT_ALLOWED: Final = (
    "its namespaceSelector does not match the labels of this run's namespace: "
    "choose another runtime, or ask an administrator for access"
)
