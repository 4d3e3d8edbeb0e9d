"""What stands on the axis of the curves, and in the list below them."""

from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import parsed, run_manifest

from rl_operator.ui.views.curve_marks import marks_of, run_events, seconds_of

START = "2026-01-01T00:00:00Z"
SECONDS = 1767225600.0


def attempt(number: int, **fields: Any) -> dict[str, Any]:
    return {"attempt": number, "pod": f"p-{number}", "started": START, "ended": START, "reason": "NodeLost", **fields}


def signs(
    events: tuple[str, ...] = (), spec: dict[str, Any] | None = None, **status: Any
) -> list[tuple[str, Any, Any]]:
    run = parsed(run_manifest(spec=spec, **status))
    return [(mark.sign, mark.step, mark.time) for mark in marks_of(run, run_events(events))]


def test_attempts() -> None:
    ended = [attempt(1, steps=60), attempt(2, fromStep=50, steps=70)]
    expected = [("E1", 60, SECONDS), ("A2", 50, SECONDS), ("E2", 70, SECONDS)]
    assert signs(attempts=ended, attempt=2, phase="Stopped") == expected
    assert signs(attempts=ended, attempt=2, phase="Succeeded") == expected[:2], "the end of the run is no mark"
    progress = {"step": 71, "fromStep": 65, "totalSteps": 100, "percent": 71}
    assert signs(attempts=ended, attempt=3, phase="Running", progress=progress)[-1] == ("A3", 65, None)


def test_what_was_saved() -> None:
    best = {"step": 40, "evalAccuracy": 0.9, "statePath": "tinker://s", "samplerPath": "tinker://w"}
    assert signs(checkpoint={"step": 50, "statePath": "tinker://s"}, best=best) == [("C", 50, None), ("B", 40, None)]


def test_the_deadline_of_a_run_that_goes_on() -> None:
    spec = {"activeDeadlineSeconds": 60}
    assert signs(spec=spec, startTime=START, phase="Running") == [("D", None, SECONDS + 60)]
    assert signs(spec=spec, startTime=START, phase="Failed") == []


@pytest.mark.parametrize(
    ("line", "sign"),
    [
        (f"{START}  Warning  BackendSilent         The backend does not answer.", "!"),
        (f"{START}  Normal   Stopping              Somebody set suspend.", "·"),
        (f"{START}  Normal   Training              Training: step 1 of 2.", None),
        (f"{START}  Warning  Training              Training: a warning.", "!"),
        ("not an event", None),
        ("yesterday  Warning  BackendSilent  No time.", None),
    ],
)
def test_events(line: str, sign: str | None) -> None:
    assert signs((line,)) == ([] if sign is None else [(sign, None, SECONDS)])


def test_text_of_events_cannot_hide_or_steer() -> None:
    (event,) = run_events([f"{START}  Normal   Odd  a\x1b[31m\u202eb\nc"])
    assert event.message == r"a\x1b[31m\u202eb\nc"


@pytest.mark.parametrize(("text", "seconds"), [(START, SECONDS), (None, None), ("", None), ("soon", None)])
def test_times(text: str | None, seconds: float | None) -> None:
    assert seconds_of(text) == seconds
