import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.tools.calls.rl_get_logs import LONGEST, search_for

LINE = "step 12/40 [WARN] loss=0.5 (a+b) C:\\temp"


@pytest.mark.parametrize(
    ("text", "taken_as", "found"),
    [
        ("loss", "plain text", True),
        ("LOSS", "plain text", True),
        ("gain", "plain text", False),
        ("(a+b)", "plain text", True),
        ("(a+)+$", "plain text", False),
        ("a{2}", "plain text", False),
        ("[WARN", "plain text", True),
        ("\\", "plain text", True),
        ("[z-a].", "plain text", False),
        (r"step \d\d/40", "pattern", True),
        (r"step \d+", "plain text", False),
        ("step.*loss", "pattern", True),
        ("loss.*step", "pattern", False),
        ("gain|loss", "pattern", True),
        ("gain|win", "pattern", False),
        ("^step", "pattern", True),
        ("^loss", "pattern", False),
        ("temp$", "pattern", True),
        ("loss$", "pattern", False),
        (r"\[warn\]", "pattern", True),
        ("[Ww]arn", "pattern", True),
        ("[^l]oss", "pattern", False),
        (r"\bloss\b", "pattern", True),
        (r"\boss", "pattern", False),
        (r"C:\\temp", "pattern", True),
        ("l..s", "pattern", True),
        (".*", "pattern", True),
        ("|", "pattern", True),
    ],
)
def test_patterns_and_what_they_find(text: str, taken_as: str, found: bool) -> None:
    search = search_for(text)
    assert (search.taken_as, search.finds(LINE)) == (taken_as, found)


def test_a_long_pattern_is_plain_text() -> None:
    assert search_for("." * LONGEST).taken_as == "pattern"
    assert search_for("." * (LONGEST + 1)).taken_as == "plain text"


@given(st.text(min_size=1, max_size=30))
def test_any_text_without_punctuation_finds_itself(text: str) -> None:
    plain = "".join(sign for sign in text if sign.isalnum())
    assert search_for(plain).finds(f"before {plain} after")


@given(st.text(alphabet="ab.*|[]^$\\+?(){}d-", min_size=1, max_size=LONGEST), st.text(alphabet="ab", max_size=20))
def test_any_pattern_is_understood_somehow(text: str, line: str) -> None:
    assert search_for(text).finds(line) in (True, False)


@pytest.mark.parametrize(
    "text", ["(a+)+$", "a*a*a*a*a*a*b", "(a|a)*b", "a?" * 40 + "a" * 20, ".*" * 49 + "b", "|".join(["a.*a.*b"] * 12)]
)
def test_no_pattern_takes_long(text: str) -> None:
    """Two thousand of the longest lines; milliseconds in the worst case, and years with backtracking."""
    line, search = "a" * 500, search_for(text)
    began = time.process_time()
    for _ in range(200):
        search.finds(line)
    assert time.process_time() - began < 5
