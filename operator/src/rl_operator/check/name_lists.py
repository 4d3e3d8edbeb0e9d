"""Existing names to suggest for an unknown one: few, since they go into a status or are paid for by token."""

from collections.abc import Sequence
from typing import Final

from rl_operator.documents.parse import abbreviated, close_matches

MOST_NAMES: Final = 20


def listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def most_alike(name: str, names: Sequence[str]) -> list[str]:
    """The nearest first."""
    alike = close_matches(name, names, most=MOST_NAMES, cutoff=0.0)
    return list(dict.fromkeys([*abbreviated(name, names), *alike]))[:MOST_NAMES]
