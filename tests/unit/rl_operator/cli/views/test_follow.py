import string
from typing import Any

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_operator.cli.commands.follow_run import is_reached, is_too_far, parse_until
from rl_operator.cli.exits import exit_code_of
from rl_operator.cli.views.follow import ScreenLine, exit_code, follow, redraw
from rl_operator.operator_errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    OperatorError,
    RefusedError,
    TargetUnreachableError,
    WaitTimeoutError,
)

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


REFUSED = [
    {"type": "Accepted", "status": "False", "reason": "LockedField", "lastTransitionTime": "2026-01-01T00:00:00Z"}
]


@pytest.mark.parametrize(
    ("status", "rests", "code"),
    [
        pytest.param({"phase": "Succeeded"}, True, 0, id="succeeded"),
        pytest.param({"phase": "Failed"}, True, 1, id="failed"),
        pytest.param({"phase": "Stopped"}, True, 0, id="stopped"),
        pytest.param({"phase": "Draft"}, True, 0, id="draft"),
        pytest.param({"phase": "Pending", "conditions": REFUSED}, True, 2, id="refused"),
        pytest.param({"phase": "Pending", "conditions": REFUSED, "observedGeneration": 0}, False, 2, id="fixed"),
        pytest.param({"phase": "Stopped", "observedGeneration": 0}, False, 0, id="resumed"),
        pytest.param({"phase": "Running"}, False, 0, id="running"),
        pytest.param({"phase": "Pending"}, False, 0, id="backing off"),
    ],
)
def test_when_a_run_is_at_rest_and_what_it_means(status: dict[str, Any], rests: bool, code: int) -> None:
    run = parsed(run_manifest(**status))
    assert (run.at_rest, exit_code(run)) == (rests, code)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RefusedError(""), 2),
        (InvalidError(""), 2),
        (ConflictError(""), 2),
        (TargetUnreachableError(""), 3),
        (ForbiddenError(""), 3),
        (WaitTimeoutError(""), 124),
    ],
)
def test_exit_codes_of_errors(error: OperatorError, code: int) -> None:
    assert exit_code_of(error) == code


def test_following_shows_each_version_once_and_ends_at_the_goal() -> None:
    target, seen = MemoryTarget(run_manifest(phase="Pending")), list[str | None]()
    phases = iter(["Starting", "Running", "Succeeded"])

    def show(run: Any) -> None:
        seen.append(run.status.phase)
        if run.status.phase != "Succeeded":
            target.create(run_manifest(phase=next(phases)))
            target.objects["default", "sorting"]["metadata"]["resourceVersion"] = str(len(seen) + 1)

    assert follow(target, "default", "sorting", show).status.phase == "Succeeded"
    assert seen == ["Pending", "Starting", "Running", "Succeeded"]


def test_following_ends_when_the_run_is_deleted() -> None:
    with pytest.raises(RefusedError, match="was deleted"):
        follow(MemoryTarget(), "default", "sorting")


def test_following_has_a_deadline() -> None:
    target = MemoryTarget(run_manifest(phase="Running", message="Training."))
    with pytest.raises(WaitTimeoutError, match=r"now: Training\."):
        follow(target, "default", "sorting", timeout=0)


def test_goals() -> None:
    at_step_3 = parsed(run_manifest(phase="Running", progress={"step": 3, "totalSteps": 9, "percent": 33}))
    assert is_reached(at_step_3, parse_until("step=3"))
    assert not is_reached(at_step_3, parse_until("step=4"))
    assert not is_reached(at_step_3, parse_until("finished"))
    forty = parsed(run_manifest(phase="Running", progress={"step": 3, "totalSteps": 40, "percent": 7}))
    assert [is_too_far(forty, parse_until(until)) for until in ("step=40", "step=41", "finished")] == [
        False,
        True,
        False,
    ]
    for wrong in ("step", "step=x", "step=-1", "Finished", ""):
        with pytest.raises(RefusedError, match="it must be finished or step=N"):
            parse_until(wrong)
