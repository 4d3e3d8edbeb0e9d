"""Text of others as it is shown, and answers that stay small."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.tools.answers.shown_text import (
    KEPT,
    LONGEST_LINE,
    MOST_CHARACTERS,
    SHORTEST,
    clean_line,
    compact,
    fit_tokens,
    one_line,
    that_fit,
    tokens,
)


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


TEXTS = st.text(max_size=400)
ANSWERS = st.dictionaries(
    st.sampled_from(["message", "failure", "refusals", "step"]),
    TEXTS | st.integers() | st.lists(st.dictionaries(st.sampled_from(["hint", "code"]), TEXTS, max_size=2), max_size=3),
)


def test_the_longest_text_is_cut_first() -> None:
    answer = {"run_id": "r" * 52, "message": "m" * 500, "failure": {"message": "f" * 100}, "step": 3}
    small = fit_tokens(answer, 100)
    assert tokens(small) <= 100
    assert small | {"message": ""} == answer | {"message": ""}
    assert small["message"].endswith("m…")


def test_small_answers_are_unchanged() -> None:
    answer = {"message": "short", "list": [1, {"hint": "x"}]}
    assert fit_tokens(answer, 100) == answer


@given(ANSWERS)
def test_any_answer_fits_unless_its_texts_are_already_short(answer: dict[str, Any]) -> None:
    small = fit_tokens(answer, 120)
    assert tokens(small) <= 120 or all(len(text) <= SHORTEST for text in _texts(small))
    assert compact(small)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for name, each in value.items() if name not in KEPT for text in _texts(each)]
    return [text for each in value for text in _texts(each)] if isinstance(value, list) else []
