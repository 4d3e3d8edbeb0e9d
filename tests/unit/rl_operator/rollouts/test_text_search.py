import pytest

from rl_operator.errors import RefusedError
from rl_operator.rollouts import text_search
from rl_operator.rollouts.text_search import LONGEST_TEXT, TextSearch


@pytest.mark.parametrize(
    ("pattern", "texts", "found"),
    [
        ("a.c", ["xx", "abc"], True),
        ("ABC", ["abc"], False),
        ("(?i)ABC", ["abc"], True),
        (r"^\d+$", ["12 3"], False),
        ("b", ["a", "", "c"], False),
        ("x", ["a" * LONGEST_TEXT + "x"], False),
        ("a", [], False),
    ],
)
def test_search(pattern: str, texts: list[str], found: bool) -> None:
    assert TextSearch.of(pattern).finds(texts) is found


def test_a_pattern_that_takes_exponential_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_search, "SECONDS", 0.05)
    with pytest.raises(RefusedError, match=r"takes more than 0\.05 seconds on one text"):
        TextSearch.of(r"(a|aa|a?a)+\1$").finds(["a" * 200 + "b"])


@pytest.mark.parametrize("pattern", ["(", "*a", "[z-a]", "\\"])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(RefusedError, match="which is no regular expression"):
        TextSearch.of(pattern)


def test_a_long_pattern() -> None:
    with pytest.raises(RefusedError, match=r"--grep has 1,001 characters; 1,000 are allowed"):
        TextSearch.of("a" * 1_001)
