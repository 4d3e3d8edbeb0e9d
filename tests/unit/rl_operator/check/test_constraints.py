"""Limits of a field, and that the check and the environment's container draw the same line."""

import time
from typing import Any

import pytest
from tests.unit.rl_operator.check.lab import check
from tests.unit.rl_operator.samples import CATALOG, catalog_of

from rl_operator.api.catalog import EnvironmentField
from rl_operator.check.locks_and_bounds import constraint_problem
from rl_operator.check.types import type_problem


def problem(value: Any, **limits: Any) -> str | None:
    return constraint_problem(value, EnvironmentField(name="x", type="Any", **limits))


KEPT: list[tuple[Any, dict[str, Any]]] = [
    (0, {"minimum": 0}),
    (0.5, {"exclusive_minimum": 0, "exclusive_maximum": 1}),
    (32000, {"minimum": 1024, "maximum": 32000}),
    (None, {"minimum": 1, "min_length": 1, "pattern": "a"}),
    ("a", {"minimum": 9, "min_length": 1, "max_length": 1}),
    (True, {"minimum": 9}),
    ([1, 2], {"min_length": 2, "pattern": "a"}),
    ({"a": 1}, {"max_length": 1}),
    ("bab", {"pattern": "a"}),  # searched, as pydantic does
    ("x", {"pattern": "("}),  # no pattern at all: the environment's own class decides
]


@pytest.mark.parametrize(("value", "limits"), KEPT)
def test_kept(value: Any, limits: dict[str, Any]) -> None:
    assert problem(value, **limits) is None


BROKEN: list[tuple[Any, dict[str, Any], str]] = [
    (-1, {"minimum": 0}, "at least 0"),
    (0, {"exclusive_minimum": 0}, "above 0"),
    (3, {"minimum": 1024, "maximum": 32000}, "at least 1024 and at most 32000"),
    (1048577, {"maximum": 1048576}, "at most 1048576"),
    (1, {"exclusive_maximum": 0.5}, "below 0.5"),
    ("", {"min_length": 1}, "at least 1 characters long"),
    ([1, 2], {"max_length": 1}, "at most 1 entries long"),
    ("b", {"pattern": "^a+$"}, "a string that matches ^a+$"),
    ("a\n", {"pattern": "^a$"}, "a string that matches ^a$"),  # as pydantic's engine has it, not Python's
]


@pytest.mark.parametrize(("value", "limits", "allowed"), BROKEN)
def test_broken(value: Any, limits: dict[str, Any], allowed: str) -> None:
    assert problem(value, **limits) == allowed


def test_a_pattern_with_catastrophic_backtracking_takes_no_time() -> None:
    before = time.perf_counter()
    assert problem("a" * 30_000, pattern="^(a+)+$") is None
    assert problem("a" * 30_000 + "!", pattern="^(a+)+$") is not None
    assert time.perf_counter() - before < 20


def test_a_refusal_says_what_is_allowed() -> None:
    catalog = catalog_of({"name": "share", "type": "float", "minimum": 0, "maximum": 1})
    [refusal] = check({"config": {"share": 2}}, catalog=catalog)
    assert (refusal.code, refusal.field, refusal.allowed) == (
        "OutOfBounds",
        "spec.config.share",
        "at least 0 and at most 1",
    )
    assert refusal.hint == "it must be at least 0 and at most 1"


FIELDS = CATALOG.named("sort_digits").fields


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_the_bundled_environments_own_values_are_accepted(field: EnvironmentField) -> None:
    assert not type_problem(field.default, field.type, field.choices)
    assert not constraint_problem(field.default, field)
