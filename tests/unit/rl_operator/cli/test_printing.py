import pytest

from rl_operator.cli.printing import (
    age,
    columns,
    fitted,
    fitting_columns,
    one_line,
    sparkline,
    visible,
)


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


def test_age_is_from_one_time_to_another() -> None:
    assert age("2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z") == "1m30s"
    assert age(None) == "-"


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert columns(["NAME", "STEP"], [["a-long-name", "1/2"], ["b", "-"]]) == (
        "NAME          STEP\na-long-name   1/2\nb             -"
    )


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


def test_an_interval_is_not_broken() -> None:
    line = "  best        step 40   0.996 [0.986, 0.999]   tinker://path"
    assert fitted([line], 34).splitlines() == ["  best  step 40", "      0.996 [0.986, 0.999]", "      tinker://path"]


def test_a_narrow_terminal_gets_fewer_columns() -> None:
    header, rows = ["NAME", "ENVIRONMENT", "STEP", "AGE"], [["sorting", "sort_digits", "1/40", "3s"]]
    dispensable = ("POD", "ENVIRONMENT", "AGE")
    assert fitting_columns(header, rows, dispensable, 34) == (columns(header, rows), [])
    narrow = fitting_columns(header, rows, dispensable, 33)
    assert narrow == ("NAME      STEP   AGE\nsorting   1/40   3s", ["ENVIRONMENT"])
    assert fitting_columns(header, rows, dispensable, 5) == ("NAME      STEP\nsorting   1/40", ["ENVIRONMENT", "AGE"])


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("a\nb\r\n\tc", "a b c"),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07", "red"),
        ("\u202eright\u2066 to\u200b left\u061c", "right to left"),
        ("\x00\x08\x9b1A", "1A"),
        ("\ue000\U000e0041\u20dd\ufe0f", ""),
        ("漢字 e\u0301 \U0001f468", "漢字 e\u0301 \U0001f468"),
    ],
)
def test_what_others_wrote_is_one_line_that_steers_nothing(hostile: str, shown: str) -> None:
    assert one_line(hostile) == shown


def test_spaces_of_a_line_stay() -> None:
    assert visible("  a\tb   c\u202e") == "  a b   c"


def test_a_text_of_several_lines_is_broken_line_by_line() -> None:
    table = "NAME   VALUE\na      1\nb      2"
    assert fitted([table, "a line that is longer"], 14).splitlines() == [
        *table.splitlines(),
        "a line that is",
        "    longer",
    ]
