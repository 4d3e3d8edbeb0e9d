import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.rollouts.visible_text import columns_of, escaped_json, shortened, visible, wrapped

ANY_TEXT = st.text(st.characters(), max_size=300)
"""Surrogates, too."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain <b>text</b>", "plain <b>text</b>"),
        ("größer 日本 😀", "größer 日本 😀"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x1b[2Jx\x1b]0;title\x07", r"\x1b[2Jx\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("a\u200b\u2066b\ufeff", r"a\u200b\u2066b\ufeff"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_steers_or_hides_is_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(ANY_TEXT)
def test_nothing_of_any_text_steers_a_terminal(text: str) -> None:
    assert visible(text).isprintable()


@given(ANY_TEXT, st.integers(3, 60))
def test_a_shortened_text_fits(text: str, width: int) -> None:
    assert columns_of(shortened(text, width)) <= width
    assert shortened(text, width).isprintable()


@given(ANY_TEXT, st.integers(3, 60))
def test_wrapped_lines_fit_and_lose_nothing(text: str, width: int) -> None:
    lines = wrapped(visible(text), width)
    assert "".join(lines) == visible(text)
    assert max(map(columns_of, lines)) <= width


def test_a_cut_in_the_middle_keeps_the_end() -> None:
    assert shortened("the answer is " + "x" * 100 + " 42", 20) == "the answer is…xxx 42"
    assert shortened("日本語" * 10, 9) == "日本語…語"


@given(st.recursive(st.none() | ANY_TEXT, lambda each: st.lists(each) | st.dictionaries(ANY_TEXT, each), max_leaves=5))
def test_escaped_json_means_the_same(value: object) -> None:
    line = json.dumps(value, ensure_ascii=False)
    escaped = escaped_json(line)
    assert json.loads(escaped) == json.loads(line)
    assert escaped.isprintable()
