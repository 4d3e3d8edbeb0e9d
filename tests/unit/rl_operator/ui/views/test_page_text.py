"""Texts as a page shows them."""

import pytest

from rl_operator.ui.views.page_text import LONGEST_LINE, figure_text, log_line, shown_lines, token_text, value_text


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


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("step 1\n", "step 1"),
        ("\x1b[31mred\x1b[0m\n", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("10 %\r50 %\r100 %\n", "100 %"),
        ("a\tb\n", "a   b"),
        ("right\u202eleft", "rightleft"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("TINKER_API_KEY=tml-0123456789abcdef", "TINKER_API_KEY=[redacted]"),
        ("\ue000 private", r"\ue000 private"),
    ],
)
def test_lines(line: str, shown: str) -> None:
    assert log_line(line) == shown


def test_a_long_line_is_cut_and_says_how_long_it_is() -> None:
    shown = log_line("x" * 1_000_000)
    assert len(shown) < LONGEST_LINE + 40
    assert shown.endswith("… [1,000,000 characters]")
