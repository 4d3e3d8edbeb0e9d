"""The panel of a followed run, and how it is shown on a terminal."""

import contextlib
import io
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pyte
import pytest
from rich.cells import cell_len
from rich.console import Console
from tests.unit.rl_operator.targets.fakes import parsed, run_manifest

from rl_operator.cli.views.follow import Show, panel, shown
from rl_operator.cli.views.run_lines import Curve

FIGURES = {
    "rolloutReward": 0.75,
    "heldOut": {"value": 0.934, "low": 0.909, "high": 0.953},
    "baseline": {"value": 0.536, "low": 0.492, "high": 0.579},
}  # fmt: skip
PROGRESS = {"step": 2000, "totalSteps": 2500, "percent": 80, "secondsPerStep": 12.34, "etaSeconds": 6170}


def training(message: str = "Training: step 2000 of 2500.", **status: Any) -> Any:
    return parsed(run_manifest(**{"phase": "Running", "message": message, "progress": PROGRESS, **status}))


def lines_of(run: Any, columns: int, rows: int = 24) -> list[str]:
    curve = Curve({step: step / 40 for step in range(40)})
    return [line.plain.rstrip() for line in panel(run, curve, "local:~/state", Console(width=columns, height=rows))]


def test_the_panel_shows_phase_steps_reward_and_time_left() -> None:
    assert lines_of(training(metrics=FIGURES), 100) == [
        "sorting  Running  local:~/state",
        f"step            {'━' * 25}{'─' * 7}  2000/2500",
        "                12.34 s per step, 1h42m left",
        "rollout reward  ▁▁▁▂▂▂▂▂▂▃▃▃▃▃▄▄▄▄▄▄▅▅▅▅▅▅▆▆▆▆▆▇▇▇▇▇▇███  0.750",
        "held-out        0.934 [0.909, 0.953]  now",
        "                0.536 [0.492, 0.579]  before training",
        "Training: step 2000 of 2500.",
    ]


def test_the_panel_on_30_columns() -> None:
    assert lines_of(training(metrics=FIGURES), 29) == [
        "sorting  Running",
        "local:~/state",
        "step     ━━━━━━━──  2000/2500",
        "         12.34 s per step",
        "         1h42m left",
        "rollout  ▁▂▃▃▄▅▆▆▇█",
        "reward   0.750",
        "held-out 0.934 [0.909, 0.953]",
        "before   0.536 [0.492, 0.579]",
        "Training: step 2000 of 2500.",
    ]


@pytest.mark.parametrize("columns", range(29, 120))
def test_no_line_is_wider_than_the_console(columns: int) -> None:
    run = training("Waiting: " + "the environment is slow, 漢字 and more. " * 12, metrics=FIGURES)
    lines = lines_of(run, columns)
    assert max(map(cell_len, lines)) <= columns
    text = "\n".join(lines)
    assert all(figure in text for figure in ("2000/2500", "12.34 s per step", "1h42m left", "0.934 [0.909, 0.953]"))


@pytest.mark.parametrize("rows", range(1, 12))
def test_a_long_message_gets_the_lines_that_are_left(rows: int) -> None:
    lines = lines_of(training("word " * 200, metrics=FIGURES), 40, rows)
    assert len(lines) <= rows
    assert lines[-1].endswith("…")


class ScreenTerminal(io.StringIO):
    """Standard output on a terminal in memory."""

    def __init__(self, columns: int = 60, rows: int = 20) -> None:
        super().__init__()
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self.screen)

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._stream.feed(text)
        return super().write(text)

    @property
    def rows(self) -> list[str]:
        return [row.rstrip() for row in self.screen.display]

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self.screen.cursor.y = min(self.screen.cursor.y, rows - 1)  # as terminals do; pyte leaves it outside


@contextlib.contextmanager
def shown_on(terminal: ScreenTerminal, label: str = "local:~/state") -> Iterator[Show]:
    with contextlib.redirect_stdout(terminal), shown(label) as show:
        yield show


@pytest.fixture
def screen_terminal(monkeypatch: pytest.MonkeyPatch) -> ScreenTerminal:
    made = ScreenTerminal()
    monkeypatch.setattr(
        shutil, "get_terminal_size", lambda *_: os.terminal_size((made.screen.columns, made.screen.lines))
    )
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("CI", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return made


def test_an_unchanged_picture_costs_nothing(screen_terminal: ScreenTerminal) -> None:
    """Nothing in it moves by itself; programs that record terminals were sent eight copies a second."""
    with shown_on(screen_terminal) as show:
        show(training())
        assert not [thread for thread in threading.enumerate() if "Refresh" in type(thread).__name__]
        written = screen_terminal.getvalue()
        assert written.count("sorting") == 1
        for _ in range(3):
            show(training())
        assert screen_terminal.getvalue() == written


def test_only_changed_lines_are_written(screen_terminal: ScreenTerminal) -> None:
    screen_terminal.write("$ rlctl watch sorting\r\n")
    with shown_on(screen_terminal) as show:
        show(training(metrics=FIGURES))
        before = len(screen_terminal.getvalue())
        show(training("Training: step 2001 of 2500.", metrics=FIGURES, progress={**PROGRESS, "step": 2001}))
        written = screen_terminal.getvalue()[before:]
    assert "2001/2500" in written
    assert "held-out" not in written
    assert "sorting" not in written
    assert screen_terminal.rows[0] == "$ rlctl watch sorting"
    assert screen_terminal.rows[7] == "Training: step 2001 of 2500."
    assert (screen_terminal.screen.cursor.y, screen_terminal.screen.cursor.x) == (8, 0)


HOSTILE = (
    "a\x1b[2J\x1b]0;title\x07\x9b1A\u202eb\tc\nd\r\x08e\u200d\u0301\ufe0f\U0001f468\u200d\U0001f469 漢字\U000e0041"
    + "f" * 80
)


@pytest.mark.parametrize("columns", [30, 44, 60])
def test_hostile_text_moves_nothing(screen_terminal: ScreenTerminal, columns: int) -> None:
    screen_terminal.resize(columns, 20)
    screen_terminal.write("$ rlctl watch sorting\r\n")
    with shown_on(screen_terminal, "local:\x1b[1A~/state") as show:
        for step in range(3):
            show(training(f"{HOSTILE} {step}", progress={**PROGRESS, "step": step}))
    rows = screen_terminal.rows
    assert rows[0] == "$ rlctl watch sorting"
    assert rows[1].startswith("sorting  Running")
    assert sum(row.startswith("step ") for row in rows) == 1
    assert "2/2500" in "".join(rows)
    assert rows[screen_terminal.screen.cursor.y - 1].endswith("f 2")
    assert not any(rows[screen_terminal.screen.cursor.y :])
    assert "\x1b[2J" not in screen_terminal.getvalue()
    assert "\u202e" not in screen_terminal.getvalue()


def test_a_terminal_that_became_wider_shows_more_in_place(screen_terminal: ScreenTerminal) -> None:
    screen_terminal.resize(40, 20)
    run = training(metrics=FIGURES)
    with shown_on(screen_terminal) as show:
        show(run)
        screen_terminal.resize(100, 20)
        show(run)
    assert screen_terminal.rows[0] == "sorting  Running  local:~/state"
    assert sum(row.startswith("step ") for row in screen_terminal.rows) == 1


def test_a_terminal_that_became_narrower_shows_it_once_more_below(screen_terminal: ScreenTerminal) -> None:
    run = training(metrics=FIGURES)
    with shown_on(screen_terminal) as show:
        show(run)
        end = screen_terminal.screen.cursor.y
        screen_terminal.resize(30, 20)
        show(run)
    assert screen_terminal.rows[end : end + 3] == ["sorting  Running", "local:~/state", "step     ━━━━━━━──  2000/2500"]


def test_after_ctrl_z_and_fg_everything_is_shown_below_the_rest(screen_terminal: ScreenTerminal) -> None:
    run = training()
    with shown_on(screen_terminal) as show:
        show(run)
        screen_terminal.write("[1]+  Stopped\r\n$ fg\r\n")
        signal.raise_signal(signal.SIGCONT)
        show(run)
    assert screen_terminal.rows[4:8] == [
        "[1]+  Stopped",
        "$ fg",
        "sorting  Running  local:~/state",
        screen_terminal.rows[1],
    ]


def test_the_lines_of_a_terminal_that_became_lower_than_they_are_stay(screen_terminal: ScreenTerminal) -> None:
    run = training(metrics=FIGURES)
    with shown_on(screen_terminal) as show:
        show(run)
        screen_terminal.resize(60, 5)
        show(run)
        before = len(screen_terminal.getvalue())
        show(training("Training: step 2001 of 2500.", metrics=FIGURES))
    assert len(screen_terminal.rows) == 5
    assert screen_terminal.rows[:2] == [
        "sorting  Running  local:~/state",
        f"step            {'━' * 25}{'─' * 7}  2000/2500",
    ]
    assert screen_terminal.rows[3:] == ["Training: step 2001 of 2500.", ""]
    assert "sorting" not in screen_terminal.getvalue()[before:]


def test_without_colors_the_bar_can_be_read(screen_terminal: ScreenTerminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with shown_on(screen_terminal) as show:
        show(training())
    assert "\x1b[32m" not in screen_terminal.getvalue()
    assert "━─" in screen_terminal.rows[1]


@pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("TERM", ""), ("CI", "true")])
def test_elsewhere_a_line_is_added_for_each_change(
    screen_terminal: ScreenTerminal,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv(name, value)
    with shown_on(screen_terminal) as show:
        for message in ("Creating the pod.", "Creating the pod.", "Pulling\x1b[2J images."):
            show(training(message, phase="Starting"))
        for eta in (9, 8):
            show(training(progress={**PROGRESS, "etaSeconds": eta}))
    printed = capsys.readouterr().out + screen_terminal.getvalue()
    assert printed.splitlines() == [
        "Starting  Creating the pod.",
        "Starting  Pulling images.",
        "Running   step 2000/2500   9s left",
    ]
