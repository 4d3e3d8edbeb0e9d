"""No settings are too large to be refused at once: the work ends at the first thing that is too large."""

from typing import Any

import pytest

from rl_operator.api.settings.size_limits import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_ENTRIES,
    MAX_FIELDS,
    MAX_TEXT,
    MAX_VALUES,
    section_problem,
)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def filled(fields: int, value: Any) -> dict[str, Any]:
    return {f"field_{number}": value for number in range(fields)}


LONG = "x" * 900_000


@pytest.mark.parametrize(
    ("settings", "field", "hint"),
    [
        (filled(10_000, 1), None, f"it has 10000 fields, and at most {MAX_FIELDS} are allowed"),
        ({"a": "x" * 900_000}, "a", f"it has 900000 characters in one place, and at most {MAX_TEXT} are allowed"),
        ({LONG: 1}, LONG, f"it has 900000 characters in one place, and at most {MAX_TEXT} are allowed"),
        ({"a": [["x" * (MAX_TEXT + 1)]]}, "a", "characters in one place"),
        ({"a": [1] * 400_000}, "a", f"it has 400000 entries in one place, and at most {MAX_ENTRIES} are allowed"),
        ({"a": {"b": filled(MAX_ENTRIES + 1, 1)}}, "a", "entries in one place"),
        ({"a": nested(MAX_DEPTH + 1)}, "a", f"it is nested more than {MAX_DEPTH} deep"),
        (filled(200, list(range(200))), None, f"it holds more than {MAX_VALUES} names and values"),
        (filled(10, "x" * (MAX_CHARACTERS // 10)), None, "it takes more than 200 kB"),
        (filled(10, "\0" * (MAX_CHARACTERS // 40)), None, "it takes more than 200 kB"),  # written as \x00
        ({f"{number}{'x' * 5_000}": 1 for number in range(250)}, None, "it takes more than 200 kB"),
    ],
)
def test_what_is_too_large_is_named(settings: dict[str, Any], field: str | None, hint: str) -> None:
    problem = section_problem(settings)
    assert problem is not None
    assert (problem[0], hint in problem[1]) == (field, True), problem


@pytest.mark.parametrize(
    "settings",
    [
        {},
        filled(MAX_FIELDS, 1),
        {"a": "x" * MAX_TEXT, "b": list(range(MAX_ENTRIES)), "c": {"d": [{"e": [1.5, None, True]}]}},
        {"a": nested(50)},
        filled(20, ["x" * 200] * 40),
    ],
)
def test_what_people_write_is_not(settings: dict[str, Any]) -> None:
    assert section_problem(settings) is None


def test_the_work_is_bounded() -> None:
    """Each of its thousand entries holds all of it again."""
    shared: list[Any] = [1] * MAX_ENTRIES
    for _ in range(10):
        shared = [shared] * MAX_ENTRIES
    assert section_problem({"a": shared}) == (None, f"it holds more than {MAX_VALUES} names and values: shorten it")
