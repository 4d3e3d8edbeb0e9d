"""Lines of a log as they are shown."""

import pytest

from rl_operator.ui.views.log_text import LONGEST_LINE, log_line


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
