"""What is written to a terminal, on a terminal in memory (pyte)."""

import string

import pyte
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.cli.views.live_lines import ScreenLine, redraw

COLUMNS, ROWS = 20, 8

lines = st.lists(
    st.text(string.ascii_letters, min_size=0, max_size=COLUMNS - 1).map(lambda text: ScreenLine(text, len(text))),
    max_size=ROWS - 1,
).map(tuple)


class Screen:
    """Rows that scrolled off are in `history`."""

    def __init__(self) -> None:
        self.screen = pyte.HistoryScreen(COLUMNS, ROWS, history=1000)
        self.stream = pyte.Stream(self.screen)

    def write(self, text: str) -> None:
        self.stream.feed(text)

    @property
    def rows(self) -> list[str]:
        gone = ["".join(row[x].data for x in range(COLUMNS)).rstrip() for row in self.screen.history.top]
        return [*gone, *(row.rstrip() for row in self.screen.display)]


@given(pictures=st.lists(lines, max_size=6), above=st.integers(0, ROWS + 2))
def test_the_screen_shows_the_newest_lines_below_what_was_there(
    pictures: list[tuple[ScreenLine, ...]], above: int
) -> None:
    screen, before = Screen(), [f"above {number}" for number in range(above)]
    screen.write("".join(f"{line}\r\n" for line in before))
    shown: tuple[ScreenLine, ...] = ()
    for picture in pictures:
        screen.write(redraw(shown, picture))
        shown = picture
        expected = [*before, *(line.text for line in picture)]
        rows = screen.rows
        assert rows[: len(expected)] == expected
        assert not any(rows[len(expected) :]), "nothing is left of earlier lines"
        assert (screen.screen.cursor.x, len(screen.screen.history.top) + screen.screen.cursor.y) == (0, len(expected))


@given(shown=lines, wanted=lines)
def test_a_line_that_stays_is_not_written(shown: tuple[ScreenLine, ...], wanted: tuple[ScreenLine, ...]) -> None:
    written = redraw(tuple(map(_marked, shown)), tuple(map(_marked, wanted)))
    changed = [line for index, line in enumerate(wanted) if index >= len(shown) or shown[index] != line]
    assert written.count("<") == len(changed)
    assert (written == "") == (shown == wanted)


def _marked(line: ScreenLine) -> ScreenLine:
    return ScreenLine(f"<{line.text}>", line.width + 2)


def test_a_changed_word_costs_its_line() -> None:
    shown = tuple(ScreenLine(text, len(text)) for text in ("sorting", "step 1/9", "reward"))
    wanted = (shown[0], ScreenLine("step 2/9", 8), shown[2])
    assert redraw(shown, wanted) == "\x1b[?7l\r\x1b[2Astep 2/9\r\x1b[2B\x1b[?7h"


def test_a_line_that_the_terminal_takes_to_be_wider_moves_no_other() -> None:
    screen = Screen()
    wide = ScreenLine("\U0001f600" * 15, 15)  # it is 30 wide
    screen.write(redraw((), (wide, ScreenLine("below", 5))))
    screen.write(redraw((wide, ScreenLine("below", 5)), (wide, ScreenLine("after", 5))))
    assert screen.rows[1:3] == ["after", ""]
