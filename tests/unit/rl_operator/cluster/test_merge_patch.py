from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rl_operator.cluster.merge_patch import merge_patch

SCALARS = st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"])
# Nulls cannot be stored by a merge patch; our models leave them out.
VALUES = st.recursive(
    SCALARS | st.lists(SCALARS, max_size=2), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


def applied(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2, word for word."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = applied(result.get(name), value)
    return result


@given(OBJECTS, OBJECTS)
def test_applying_the_patch_gives_what_was_wanted(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert applied(before, merge_patch(before, after)) == after


@given(OBJECTS)
def test_nothing_to_do_is_an_empty_patch(document: dict[str, Any]) -> None:
    assert merge_patch(document, document) == {}


def test_only_what_differs_is_sent() -> None:
    before = {"phase": "Starting", "progress": {"step": 1, "totalSteps": 4}, "message": "m"}
    after = {"phase": "Running", "progress": {"step": 2, "totalSteps": 4}}
    assert merge_patch(before, after) == {"phase": "Running", "progress": {"step": 2}, "message": None}
