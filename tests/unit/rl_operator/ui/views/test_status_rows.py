"""What stands below the curves."""

from tests.unit.rl_operator.targets.fakes import parsed, run_manifest

from rl_operator.ui.views.short_text import LONGEST
from rl_operator.ui.views.status_rows import attempt_rows, condition_rows, weights_rows

START = "2026-01-01T00:00:00Z"


def test_weights_with_what_they_are_for() -> None:
    saved = {"statePath": "tinker://s", "samplerPath": "tinker://w", "expiresAt": START}
    best = {**saved, "step": 4, "evalAccuracy": 0.9}
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
    assert (ended.number, ended.steps, ended.ended, ended.reason) == (1, 3, "–", "–")
    for text in (ended.pod, held.reason, held.message):
        assert text.startswith(r"a\u202ebx")
        assert len(text) <= LONGEST + 5
