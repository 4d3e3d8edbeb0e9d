"""Does a value keep to the limits that an environment's source states for a field?"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from rl_operator.api.catalog import EnvironmentField
from rl_operator.check.types import is_number

_COMPARISONS: Final[tuple[tuple[str, str, Callable[[Any, Any], bool]], ...]] = (
    ("minimum", "at least", lambda value, limit: value >= limit),
    ("exclusive_minimum", "above", lambda value, limit: value > limit),
    ("maximum", "at most", lambda value, limit: value <= limit),
    ("exclusive_maximum", "below", lambda value, limit: value < limit),
)


def constraint_problem(value: Any, field: EnvironmentField) -> str | None:
    """All that the field's limits allow, e.g. `at least 1024 and at most 32000`, when the value is outside of them.

    Numbers are compared, texts, lists and mappings are counted, texts are searched for the pattern. A value of another
    kind passes: whether it fits at all, its type says.
    """
    kept = list(_limits(value, field))
    return None if all(is_kept for _, is_kept in kept) else " and ".join(allowed for allowed, _ in kept)


def _limits(value: Any, field: EnvironmentField) -> Iterator[tuple[str, bool]]:
    """(what is allowed, whether the value keeps to it), for each limit that concerns such a value."""
    if is_number(value):
        for name, words, is_kept in _COMPARISONS:
            if (limit := getattr(field, name)) is not None:
                yield f"{words} {_shown(limit)}", is_kept(value, limit)
    if isinstance(value, str | list | tuple | dict):
        unit = "characters" if isinstance(value, str) else "entries"
        if field.min_length is not None:
            yield f"at least {field.min_length} {unit} long", len(value) >= field.min_length
        if field.max_length is not None:
            yield f"at most {field.max_length} {unit} long", len(value) <= field.max_length
    if isinstance(value, str) and field.pattern is not None:
        yield f"a text that matches {field.pattern}", _matches(field.pattern, value)


def _shown(limit: float) -> str:
    return str(int(limit)) if limit.is_integer() else str(limit)


def _matches(pattern: str, text: str) -> bool:
    """As pydantic decides in the environment. Its engine takes linear time, and a pattern may be anybody's."""
    validator = _validator(pattern)
    if validator is None:
        return True
    try:
        validator.validate_python(text)
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=256)
def _validator(pattern: str) -> SchemaValidator | None:
    """None for a pattern that the engine does not know: the environment's own class decides at the start."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern))
    except SchemaError:
        return None
