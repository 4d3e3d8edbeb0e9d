import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.tools.answers.shown_text import LONGEST_LINE, MOST_CHARACTERS, clean_line, that_fit


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain\n", "plain"),
        ("windows\r\n", "windows"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10%\r50%\r100%\n", "100%"),
        ("a\tb", "a\tb"),
        ("bell\x07 null\x00", "bell null"),
        ("\u202ereversed\u200b", "reversed"),
        ("key tml-abcdefgh123", "key [redacted]"),
        ("tml-\x1b[0mabcdefgh123", "[redacted]"),
        ("x" * 600, "x" * (LONGEST_LINE - 1) + "…"),
    ],
)
def test_lines_as_they_are_shown(line: str, shown: str) -> None:
    assert clean_line(line) == shown


def test_a_key_is_removed_before_the_line_is_cut() -> None:
    assert "tml" not in clean_line("x " * 245 + "tml-abcdefghijklmnop")


@given(st.text())
def test_any_line_is_short_and_without_control_characters(line: str) -> None:
    shown = clean_line(line)
    assert len(shown) <= LONGEST_LINE
    assert not set(shown) & {chr(code) for code in (*range(9), *range(10, 32), *range(127, 160))}


@given(st.lists(st.text(max_size=LONGEST_LINE), max_size=200))
def test_lines_fit_together(lines: list[str]) -> None:
    shown = that_fit(lines)
    assert len("\n".join(shown)) <= MOST_CHARACTERS
    assert list(shown) == lines[len(lines) - len(shown) :]
    if len(shown) < len(lines):
        assert sum(len(line) + 1 for line in lines[len(lines) - len(shown) - 1 :]) > MOST_CHARACTERS
