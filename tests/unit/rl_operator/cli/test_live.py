import io
import sys
import threading

import pytest
from rich.console import Console
from tests.unit.rl_operator.targets.fakes import parsed, run_manifest

from rl_operator.cli.views.follow import shown
from rl_operator.cli.views.progress import Curve, panel


def test_the_panel_shows_phase_steps_reward_and_time_left() -> None:
    run = parsed(
        run_manifest(
            phase="Running",
            message="Training: step 10 of 40.",
            progress={"step": 10, "totalSteps": 40, "percent": 25, "secondsPerStep": 0.6, "etaSeconds": 18},
            metrics={"rewardMean": 0.75, "evalAccuracy": 0.6},
            history=[{"step": 1, "rewardMean": 0.5}],
        )
    )
    curve = Curve()
    curve.add(run)
    screen = Console(width=100, force_terminal=False)
    with screen.capture() as captured:
        screen.print(panel(run, curve, "local:~/state"))
    text = captured.get()
    for part in (
        "sorting",
        "Running",
        "local:~/state",
        "10/40",
        "0.60 s per step",
        "18s left + evaluation",
        "0.750",
        "▁█",
        "0.600",
    ):
        assert part in text


def test_the_panel_fits_60_columns() -> None:
    interval = {"evalAccuracy": 0.934, "evalAccuracyLow": 0.909, "evalAccuracyHigh": 0.953}
    before = {"baselineAccuracy": 0.536, "baselineAccuracyLow": 0.492, "baselineAccuracyHigh": 0.579}
    run = parsed(
        run_manifest(
            phase="Running",
            message="Training: step 2000 of 2500.",
            progress={"step": 2000, "totalSteps": 2500, "percent": 80, "secondsPerStep": 12.34, "etaSeconds": 6170},
            metrics={"rewardMean": 0.75, **interval, **before},
        )
    )
    curve = Curve({step: step / 40 for step in range(40)})
    screen = Console(width=60, force_terminal=False)
    with screen.capture() as captured:
        screen.print(panel(run, curve, "local:~/state"))
    lines = captured.get().splitlines()
    assert len(lines) == 7, "no line is wrapped"
    assert lines[4].split() == ["held-out", "0.934", "[0.909,", "0.953]", "now"]
    assert lines[5].split() == ["0.536", "[0.492,", "0.579]", "before", "training"]


class ScriptTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_unchanged_picture_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in it moves by itself; programs that record terminals were sent eight copies a second."""
    terminal = ScriptTerminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    run = parsed(run_manifest(phase="Running"))
    with shown("local:~/state") as show:
        show(run)
        assert terminal.getvalue().count("sorting") == 1
        assert not [thread for thread in threading.enumerate() if "Refresh" in type(thread).__name__]
        show(run)
        assert terminal.getvalue().count("sorting") == 2
