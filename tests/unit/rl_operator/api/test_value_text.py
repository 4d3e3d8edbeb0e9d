"""The API server's formatting is tested in tests/integration/cluster/test_policies.py."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.api import value_text
from rl_operator.api.value_text import same_value, text_of
from rl_operator.documents.yaml_text import json_value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (8, "8"),
        ("8", '"8"'),
        (1.0, "1"),
        (-0.0, "0"),
        (4e-5, "4e-05"),
        (0.0001, "0.0001"),
        (0.1, "0.1"),
        (123456.789, "123456.789"),
        (1234567.5, "1.2345675e+06"),
        (1e21, "1e+21"),
        (2**63 - 1, "9223372036854775807"),
        (2**63, "9.223372036854776e+18"),
        ('a"b\\\n\x1b\x7f☃\u2028\U000e0001', r'"a\"b\\\n\x1b\x7f☃\u2028\U000e0001"'),
        ([1, "a", 4e-5, None, []], '[1, "a", 4e-05, null, []]'),
        ({"b": [4e-5], "a": {"c": False}}, '{"a":{"c":false}, "b":[0.000040]}'),
    ],
)
def test_text(value: Any, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize("text", ["\u6f22\u5b57\n" * 100, "\U0001f600" * 100], ids=["ideographs", "emoji"])
def test_a_character_of_a_long_text_is_looked_at_once(text: str) -> None:
    """A section may have 200,000 of them, and the event loop waits."""
    value_text._escaped.cache_clear()
    assert len(text_of(text)) == len(text) + 2 + text.count("\n")
    assert value_text._escaped.cache_info().misses <= 3


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(ANY_JSON)
def test_any_value_is_one_printable_line_and_unchanged_by_storage(value: Any) -> None:
    assert text_of(value).isprintable()
    assert text_of(json_value(value)) == text_of(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_reads_back(value: float) -> None:
    assert float(json.loads(text_of(value))) == value


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (0, False, False),
        (True, True, True),
        (None, None, True),
        (None, 0, False),
        ("1", 1, False),
        ([1, {"a": 2}], [1.0, {"a": 2.0}], True),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"b": 1}, False),
    ],
)
def test_same_value(left: Any, right: Any, same: bool) -> None:
    assert same_value(left, right) is same
    assert same_value(right, left) is same
