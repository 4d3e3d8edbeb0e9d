import pytest

from rl_operator.cli.printing import age, columns, duration, fitted, interval, sparkline


@pytest.mark.parametrize(
    ("values", "curve"),
    [
        ([], ""),
        ([0.5], "▁"),
        ([0.0, 1.0], "▁█"),
        ([1, 0, 1], "█▁█"),
        ([0.5, 0.5], "▁▁"),
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
    ],
)
def test_sparkline(values: list[float], curve: str) -> None:
    assert sparkline(values) == curve


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


def test_age_is_from_one_time_to_another() -> None:
    assert age("2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z") == "1m30s"
    assert age(None) == "-"


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert columns(["NAME", "STEP"], [["a-long-name", "1/2"], ["b", "-"]]) == (
        "NAME          STEP\na-long-name   1/2\nb             -"
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [((None, None, None), "-"), ((0.5, None, None), "0.500"), ((0.5, 0.25, 0.75), "0.500 [0.250, 0.750]")],
)
def test_interval(given: tuple[float | None, float | None, float | None], text: str) -> None:
    assert interval(*given) == text


def test_lines_break_between_words_where_the_terminal_is_narrower() -> None:
    lines = ["", "  weights    tinker://a-path-that-is-longer-than-the-terminal   (to sample from)", "short"]
    assert fitted(lines, 200).splitlines() == lines
    assert fitted(lines, 30).splitlines() == [
        "",
        "  weights",
        "      tinker://a-path-that-is-longer-than-the-terminal",
        "      (to sample from)",
        "short",
    ]
