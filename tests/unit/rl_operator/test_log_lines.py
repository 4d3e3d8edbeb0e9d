from hypothesis import given
from hypothesis import strategies as st

from rl_operator.log_lines import CUT, LineCutter


def lines_of(*chunks: bytes, longest: int = 8) -> list[bytes]:
    cutter = LineCutter(longest)
    return [*(line for chunk in chunks for line in cutter.feed(chunk)), *cutter.rest()]


@given(st.binary(max_size=60), st.integers(1, 9))
def test_how_the_bytes_arrive_does_not_matter(text: bytes, size: int) -> None:
    chunks = [text[begin : begin + size] for begin in range(0, len(text), size)]
    assert b"".join(lines_of(*chunks, longest=60)) == text


def test_a_long_line_is_cut_and_says_so() -> None:
    assert lines_of(b"12345678", b"9", b"0\nnext") == [b"12345678" + CUT + b"\n", b"next"]


def test_a_line_of_exactly_the_limit_is_whole() -> None:
    assert lines_of(b"1234", b"5678", b"\n") == [b"12345678\n"]


def test_the_last_state_of_a_long_progress_bar_is_kept() -> None:
    assert lines_of(b"\r 10 %\r 20 %\r 30 %\r\n") == [b" 30 %\n"]
    assert lines_of(b"123456789", b"\r 40 %", b"\n") == [b" 40 %\n"]
