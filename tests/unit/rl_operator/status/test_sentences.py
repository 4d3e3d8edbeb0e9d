"""What others said becomes one short line; what is shown is bounded in bytes."""

from hypothesis import given
from hypothesis import strategies as st

from rl_operator.status.sentences import MAX_MESSAGE, clean, joined, shorten


def test_secrets_are_removed() -> None:
    assert clean("key tml-abcdefgh123 refused") == "key [redacted] refused"


@given(st.text())
def test_any_message_becomes_one_short_line(text: str) -> None:
    cleaned = clean(text)
    assert len(cleaned) <= MAX_MESSAGE
    assert "\n" not in cleaned


@given(st.text(), st.integers(min_value=3, max_value=100))
def test_any_text_is_cut_to_its_bytes(text: str, limit: int) -> None:
    text = text.encode(errors="ignore").decode()
    short = shorten(text, limit)
    assert len(short.encode()) <= limit
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))


def test_sentences_have_their_full_stops() -> None:
    assert joined("One", "", "two.", "three…") == "One. two. three…"
