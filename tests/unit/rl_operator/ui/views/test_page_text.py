"""Texts as a page shows them."""

import pytest

from rl_operator.ui.views.page_text import figure_text, shown_lines, token_text, value_text


@pytest.mark.parametrize(
    ("piece", "text", "odd"),
    [
        ("ab", "ab", False),
        (" ", " ", False),
        ("a\nb", "a⏎\nb", False),
        ("\r", "\\r", True),
        ("\u202eabc", "\\u202eabc", True),
        ("\x1b[31m", "\\x1b[31m", True),
        ("ü漢", "ü漢", False),
        ("\ud800", "\\ud800", True),
        ("z" + "\u0301" * 6, "z" + "\u0301" * 4 + "\\u0301\\u0301", True),
        ("नमस्ते ế ก็", "नमस्ते ế ก็", False),
        ("<b>", "<b>", False),  # the template escapes it
        ("x" * 300, "x" * 200 + "… (100 more characters)", True),
    ],
)
def test_a_token_is_seen(piece: str, text: str, odd: bool) -> None:
    assert token_text(piece) == (text, odd)


def test_lines_stay_lines() -> None:
    assert shown_lines("a\tb\n\x07c", 100).text == "a\tb\n\\x07c"


@pytest.mark.parametrize(
    ("value", "text"), [("a\nb", "a\\nb"), ([1, "ü"], '[1,"ü"]'), (None, "null"), ("x" * 999, "x" * 300 + "…")]
)
def test_values_take_one_line(value: object, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (0.0, "0"), (-0.0001, "0"), (-0.625, "−0.625"), (10.0, "10"), (0.5, "0.5"), (1e9, "1e+09"),
        (-2e6, "−2e+06"),
    ],
)  # fmt: skip
def test_figures(value: float | None, text: str) -> None:
    assert figure_text(value) == text
