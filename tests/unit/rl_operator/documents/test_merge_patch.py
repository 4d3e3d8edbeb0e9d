from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.documents.merge_patch import merge_patch, merged

SCALARS = st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"])
# Nulls cannot be stored by a merge patch; our models leave them out.
VALUES = st.recursive(
    SCALARS | st.lists(SCALARS, max_size=2), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@given(OBJECTS, OBJECTS)
def test_applying_the_patch_gives_the_wanted_object(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert merged(before, merge_patch(before, after)) == after


@given(OBJECTS)
def test_nothing_to_do_is_an_empty_patch(document: dict[str, Any]) -> None:
    assert merge_patch(document, document) == {}


def test_only_what_differs_is_sent() -> None:
    before = {"phase": "Starting", "progress": {"step": 1, "totalSteps": 4}, "message": "m"}
    after = {"phase": "Running", "progress": {"step": 2, "totalSteps": 4}}
    assert merge_patch(before, after) == {"phase": "Running", "progress": {"step": 2}, "message": None}


@pytest.mark.parametrize(
    ("original", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_the_rfc(original: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]) -> None:
    """Appendix A; only the rows that are objects."""
    assert merged(original, patch) == result
