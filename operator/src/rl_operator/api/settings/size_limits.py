"""How large the settings of a run or a runtime may be. What is larger is refused before anything else looks at it, so
that no document holds up the others. The CRDs hold the same, as far as a schema can say it.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from rl_operator.api.value_text import formatted

MAX_FIELDS: Final = 256
"""Of one section (`spec.config`, `spec.locked.env`, …)."""
MAX_ENTRIES: Final = 1_000
"""Of one list or mapping in it."""
MAX_TEXT: Final = 50_000
"""Characters of one text in it."""
MAX_VALUES: Final = 10_000
"""Of a whole section: names and values at every depth."""
MAX_DEPTH: Final = 64
"""Of a document."""
MAX_CHARACTERS: Final = 200_000
"""Of a whole section. A run's ConfigMap holds it as YAML, besides the templates of pods, and is limited to 1 MiB."""

SMALL_VALUES: Final = 500
"""Of documents that are small: names and values at every depth."""
SMALL_CHARACTERS: Final = 10_000

LONGEST_NUMBER: Final = 320
"""Characters that `formatted` makes of one: it writes 1e308 out."""
LONGEST_ESCAPE: Final = 10
"""Of one character: \\U0001f600."""

_SECTION_DEPTH: Final = 4
"""Of a value in a section, at most: `spec.locked.env.NAME`."""

MAX_LABELS: Final = 256
"""And as many annotations. Kubernetes limits only the size of the latter."""

TOO_LARGE: Final = f"it takes more than {MAX_CHARACTERS // 1000} kB, and no more are allowed: shorten it"


def section_problem(settings: Mapping[str, object]) -> tuple[str | None, str] | None:
    """Which field is too large (None: all together) and what to do; None if everything is of a usual size.

    The work is bounded, whatever the settings are: it ends at the first thing that is too large.
    """
    if len(settings) > MAX_FIELDS:
        return None, f"it has {len(settings)} fields, and at most {MAX_FIELDS} are allowed: leave out the others"
    values = characters = 0
    for name, setting in settings.items():
        for value, depth in _walk(name, setting):
            if problem := _value_problem(value, depth):
                return name, problem
            values, characters = values + 1, characters + _length(value)
            if values > MAX_VALUES:
                return None, f"it holds more than {MAX_VALUES} names and values: shorten it"
            if characters > MAX_CHARACTERS:
                return None, TOO_LARGE
    at_most = LONGEST_NUMBER * values + LONGEST_ESCAPE * characters
    return (None, TOO_LARGE) if at_most > MAX_CHARACTERS and len(formatted(settings)) > MAX_CHARACTERS else None


def are_small(*documents: object) -> bool:
    """Whether they hold so little together that nothing that is done with them takes long. The work is bounded."""
    characters = 0
    for number, (value, _) in enumerate(_walk(*documents)):
        characters += _length(value)
        if number >= SMALL_VALUES or characters > SMALL_CHARACTERS:
            return False
    return True


def _length(value: object) -> int:
    """Characters of a value alone, at least."""
    return len(value) if isinstance(value, str) else 1


def _walk(*values: object) -> Iterator[tuple[object, int]]:
    """Values, and those in them, with their depths; parents come before their children."""
    ahead = [(value, _SECTION_DEPTH) for value in values]
    while ahead:
        value, depth = ahead.pop()
        yield value, depth
        if isinstance(value, Mapping):
            ahead += ((child, depth + 1) for item in value.items() for child in item)
        elif isinstance(value, list | tuple):
            ahead += ((child, depth + 1) for child in value)


def _value_problem(value: object, depth: int) -> str | None:
    if depth > MAX_DEPTH:
        return f"it is nested more than {MAX_DEPTH} deep: make it flatter"
    if isinstance(value, str):
        size, most, unit = len(value), MAX_TEXT, "characters"
    elif isinstance(value, Mapping | list | tuple):
        size, most, unit = len(value), MAX_ENTRIES, "entries"
    else:
        return None
    return f"it has {size} {unit} in one place, and at most {most} are allowed: shorten it" if size > most else None
