"""Existing names to suggest for an unknown one: few, since they go into a status or are paid for by token."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rl_operator.api.names import OWN_PREFIX
from rl_operator.documents.parse import abbreviated, close_matches, nearest

MOST_NAMES: Final = 20
MOST_OF_A_LIBRARY: Final = 3


def outlined(names: Sequence[str]) -> list[str]:
    """Names of environments, with one entry in place of many of the same library: `reasoning-gym/NAME`."""
    family_of = {name: name.partition("/")[0] for name in names if "/" in name and not name.startswith(OWN_PREFIX)}
    sizes = Counter(family_of.values())
    large = {name: f"{family}/NAME" for name, family in family_of.items() if sizes[family] > MOST_OF_A_LIBRARY}
    return list(dict.fromkeys(large.get(name, name) for name in names))


def unknown_environment(name: str, available: Sequence[str]) -> tuple[str, list[str]]:
    """What follows `there is no such environment`, and the names to choose from: in a library, its own that are most
    alike.
    """
    library = name.partition("/")[0]
    members = [each for each in available if "/" in name and each.startswith(f"{library}/")]
    if members:
        alike = most_alike(name, members)
        some = f"{library} has {len(members)}, such as {', '.join(alike[:MOST_OF_A_LIBRARY])}"
        return f"{nearest(name, members)} ({some})", alike
    names = outlined(available)
    return f"{nearest(name, available)} (available: {listed(names) or 'none'})", names


def listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def most_alike(name: str, names: Sequence[str]) -> list[str]:
    """The nearest first."""
    alike = close_matches(name, names, most=MOST_NAMES, cutoff=0.0)
    return list(dict.fromkeys([*abbreviated(name, names), *alike]))[:MOST_NAMES]
