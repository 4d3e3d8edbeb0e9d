"""What a run's page says first."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import parsed, run_manifest

from rl_operator.ui.views.page_text import LONGEST
from rl_operator.ui.views.run_facts import (
    RunHead,
    attempt_rows,
    condition_rows,
    marks_of,
    run_events,
    run_head,
    seconds_of,
    weights_rows,
)

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
    best = {"step": 40, "heldOut": {"value": 0.9}, "statePath": "tinker://s", "samplerPath": "tinker://w"}
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


NOW = datetime(2026, 1, 1, 1, tzinfo=UTC)


def head(**status: Any) -> RunHead:
    return run_head(parsed(run_manifest(**status)), NOW)


def test_a_run_that_nobody_has_seen() -> None:
    found = head()
    assert (found.phase, found.sentence, found.step) == ("Pending", "Nobody has looked at this run yet.", None)
    assert found.facts == (("environment", "sort_digits"), ("runtime", "tiny"))


def test_the_account_of_items() -> None:
    items = {"seen": 9, "trained": 6, "dropped": {"equal": 1}, "underWay": 2}
    assert ("items", "9 seen = 6 trained + 1 dropped (1 equal) + 2 under way") in head(items=items).facts


@pytest.mark.parametrize(
    ("refusal", "row"),
    [
        (
            {"code": "OutOfBounds", "field": "spec.config.a", "given": -4, "allowed": "≥ 1", "hint": "≥ 1, please"},
            ("OutOfBounds", "spec.config.a", "-4", "", "≥ 1, please."),
        ),
        (
            {"code": "LockedField", "field": "spec.trainer.loss", "given": "ppo", "locked": "cispo", "hint": "go"},
            ("LockedField", "spec.trainer.loss", "ppo", "locked to cispo", "Go."),
        ),
        (
            {"code": "WrongType", "field": "spec.config.b", "allowed": ["x", "y"], "hint": "choose one"},
            ("WrongType", "spec.config.b", "", '["x", "y"]', "Choose one."),
        ),
    ],
)  # fmt: skip
def test_refusals_have_field_value_allowed_and_hint(refusal: dict[str, Any], row: tuple[str, ...]) -> None:
    [shown] = head(refusals=[refusal]).refusals
    assert (shown.code, shown.field, shown.given, shown.allowed, shown.hint) == row


def test_a_failure_leads_to_the_log() -> None:
    failure = {"reason": "TrainerFailed", "container": "trainer", "message": "no room \x1b[31m"}
    found = head(phase="Failed", failure=failure, podName="p", message="Failed.")
    assert (found.failure, found.failed_container) == (r"TrainerFailed: no room \x1b[31m", "trainer")
    assert head(phase="Failed", failure=failure).failed_container == "", "there was no pod"
    assert head(phase="Succeeded", failure=failure).failure == "", "an earlier attempt's"


def test_progress_with_the_time_that_is_left() -> None:
    progress = {"step": 3, "totalSteps": 10, "percent": 30, "secondsPerStep": 2.0, "etaSeconds": 75}
    found = head(phase="Running", progress=progress, startTime=START)
    assert (found.step, found.total_steps, found.left) == (3, 10, "1m15s left")
    assert ("since the start", "1h00m") in found.facts
    assert ("pace", "2.00 s per step") in found.facts
    paid = head(phase="Running", startTime=START, cost={"amount": 1.5, "currency": "USD", "budget": 9})
    assert ("cost", "1.50 of 9.00 USD") in paid.facts
    over = head(phase="Failed", progress=progress, startTime=START, completionTime="2026-01-01T00:01:00Z")
    assert (over.left, dict(over.facts)["took"]) == ("", "1m00s")


@pytest.mark.parametrize(
    ("url", "shown"), [("https://wandb.ai/a", "https://wandb.ai/a"), ("javascript:alert(1)", ""), (None, "")]
)
def test_only_addresses_of_the_web_become_links(url: str | None, shown: str) -> None:
    assert head(wandb={"url": url}).tracker_url == shown


def test_weights_with_what_they_are_for() -> None:
    saved = {"statePath": "tinker://s", "samplerPath": "tinker://w", "expiresAt": START}
    best = {**saved, "step": 4, "heldOut": {"value": 0.9}}
    run = parsed(run_manifest(weights=saved, best=best, checkpoint={"step": 5, "statePath": "tinker://c"}))
    assert [(row.what, row.path, row.use, row.expires) for row in weights_rows(run)] == [
        ("final", "tinker://w", "sample from", START),
        ("final", "tinker://s", "train on from", START),
        ("best, step 4", "tinker://w", "sample from (--best)", START),
        ("best, step 4", "tinker://s", "train on from", START),
        ("checkpoint, step 5", "tinker://c", "train on from", ""),
    ]


def test_attempts_and_conditions_cannot_hide_and_are_not_long() -> None:
    odd = "a\u202eb" + "x" * 5_000
    attempt = {"attempt": 1, "pod": odd, "steps": 3}
    condition = {"type": "Ready", "status": "True", "reason": odd, "message": odd, "lastTransitionTime": START}
    run = parsed(run_manifest(attempts=[attempt], conditions=[condition]))
    (ended,), (held,) = attempt_rows(run), condition_rows(run)
    assert (ended.attempt, ended.steps, ended.ended, ended.reason) == (1, 3, "–", "–")
    for text in (ended.pod, held.reason, held.message):
        assert text.startswith(r"a\u202ebx")
        assert len(text) <= LONGEST + 5
