import re
from typing import Any

import pytest
from tests.unit.rl_operator.check.lab import check
from tests.unit.rl_operator.samples import make_runtime


@pytest.mark.parametrize(
    ("spec", "code", "field", "hint"),
    [
        ({"startFrom": {}}, "Inconsistent", "spec.startFrom", "exactly one of run and statePath"),
        ({"environment": "toi"}, "UnknownEnvironment", "spec.environment", "did you mean 'toy'.*available: toy"),
        ({"environment": "own/mine"}, "UnknownEnvironment", "spec.environment", "no RLEnvironment 'mine' in team-a"),
        ({"environment": "./mine.py"}, "UnknownEnvironment", "spec.environment", "files are for local mode"),
        ({"ttlSecondsAfterFinished": 0}, "NotSupported", "spec.ttlSecondsAfterFinished", "leave the field out"),
        (
            {"config": {"tokenizer_name": "x" * 200_000}},
            "OutOfBounds",
            "spec.config",
            "takes 200 kB, and at most 200 kB",
        ),
        ({"activeDeadlineSeconds": 601}, "OutOfBounds", "spec.activeDeadlineSeconds", "at most 600"),
    ],
)
def test_refused(spec: dict[str, Any], code: str, field: str, hint: str) -> None:
    [refusal] = check(spec)
    assert (refusal.code, refusal.field) == (code, field)
    assert re.search(hint, refusal.hint), refusal.hint


def test_a_runtime_that_promises_what_nothing_enforces_is_refused() -> None:
    [refusal] = check({}, make_runtime(limits={"maxActiveRuns": 3}))
    assert (refusal.code, refusal.field) == ("NotSupported", "spec.runtime")
    assert "limits.maxActiveRuns" in refusal.hint
