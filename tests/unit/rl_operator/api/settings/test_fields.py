"""Dotted names of fields, and the nested values of a file."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.api.settings.fields import at_path, flattened, nested, outer_names, steps_of

KNOWN = ["seed", "taskset.size", "taskset.level", "tasks"]


def test_outer_names_are_those_that_hold_fields_and_are_none() -> None:
    assert outer_names(KNOWN) == {"taskset"}
    assert outer_names([*KNOWN, "taskset"]) == frozenset()
    assert outer_names([]) == frozenset()


@pytest.mark.parametrize(
    ("written", "by_name"),
    [
        ({"seed": 1, "taskset": {"size": 3}}, {"seed": 1, "taskset.size": 3}),
        ({"taskset": {"sizes": 3, "a.b": 1}}, {"taskset.sizes": 3, "taskset.a.b": 1}),
        ({"taskset": {"size": {"max": 3}}}, {"taskset.size": {"max": 3}}),
        ({"tasks": {"size": 3}}, {"tasks": {"size": 3}}),
        ({"taskset": {}}, {}),
        ({"taskset": None}, {"taskset": None}),
    ],
    ids=["a field", "unknown ones", "one level only", "a field that is a mapping", "nothing", "no mapping"],
)
def test_values_by_the_names_of_fields(written: dict[str, Any], by_name: dict[str, Any]) -> None:
    assert flattened(written, KNOWN) == by_name


NAMES = st.sampled_from(KNOWN)


@given(st.dictionaries(NAMES, st.none() | st.integers() | st.dictionaries(st.text(), st.integers())))
def test_what_is_nested_is_flattened_to_the_same(values: dict[str, Any]) -> None:
    found = nested(values, KNOWN)
    assert flattened(found, KNOWN) == values
    assert list(found) == sorted(found)


def test_a_path() -> None:
    assert steps_of("taskset.size", {"taskset"}) == ("taskset", "size")
    assert steps_of("other.size", {"taskset"}) == ("other.size",)
    assert at_path(("config", "taskset", "size"), 3) == {"config": {"taskset": {"size": 3}}}
