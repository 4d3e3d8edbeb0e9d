"""Any written value reads back unchanged."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.documents.yaml_lines import block, flow
from rl_operator.documents.yaml_text import json_value, read_yaml

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("bundled", "bundled"),
        ("yes", '"yes"'),
        ("1", '"1"'),
        ("a: b", '"a: b"'),
        ("a #b", '"a #b"'),
        (0.001, "0.001"),
        (None, "null"),
        ([1, "a"], '[1, "a"]'),
    ],
)
def test_plain_where_it_can_be(value: Any, written: str) -> None:
    assert flow(value) == written


@given(VALUES)
def test_a_value_in_a_line_reads_back(value: Any) -> None:
    written = f"key: {flow(value)}"
    assert "\n" not in written
    assert read_yaml(written) == [{"key": json_value(value)}]


@given(st.text())
def test_a_text_in_a_block_reads_back(text: str) -> None:
    assert read_yaml(f"data:\n{block('a.py', text, indent=2)}more: 1\n") == [{"data": {"a.py": text}, "more": 1}]


def test_code_stays_readable() -> None:
    assert block("a.py", "def f():\n\n    return 1\n", indent=2) == "  a.py: |\n    def f():\n\n        return 1\n"
