import pytest

from rl_operator.status.text.figure_text import duration, interval


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"),
        (0.4, "0s"),
        (59, "59s"),
        (60, "1m00s"),
        (3599, "59m59s"),
        (3600, "1h00m"),
        (86400, "1d0h"),
        (200000, "2d7h"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("given", "text"),
    [((None, None, None), "-"), ((0.5, None, None), "0.500"), ((0.5, 0.25, 0.75), "0.500 [0.250, 0.750]")],
)
def test_interval(given: tuple[float | None, float | None, float | None], text: str) -> None:
    assert interval(*given) == text
