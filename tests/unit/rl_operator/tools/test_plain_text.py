import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.tools.answers.shown_text import one_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("two\nlines\r\n", "two lines"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\u202ereversed\u2066", "reversed"),
        ("tml-\u200babcdefgh123", "[redacted]"),
        ("a \u200b b", "a b"),
    ],
)
def test_texts_as_they_are_shown(text: str, line: str) -> None:
    assert one_line(text) == line


@given(st.text())
def test_any_text_is_one_line_without_control_characters(text: str) -> None:
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    assert not set(line) & {chr(code) for code in (*range(32), *range(127, 160), 0x202E, 0x200B)}
