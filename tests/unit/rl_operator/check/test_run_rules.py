import re
from typing import Any

import pytest
from tests.unit.rl_operator.check.lab import TOY, check

from rl_operator.api.catalog import AbsentFamily


@pytest.mark.parametrize(
    ("spec", "code", "field", "hint"),
    [
        ({"startFrom": {}}, "Inconsistent", "spec.startFrom", "exactly one of run and statePath"),
        ({"environment": "toi"}, "UnknownEnvironment", "spec.environment", "did you mean 'toy'.*available: toy"),
        ({"environment": "own/mine"}, "UnknownEnvironment", "spec.environment", "no RLEnvironment 'mine' in team-a"),
        ({"environment": "./mine.py"}, "UnknownEnvironment", "spec.environment", "files are for local mode"),
        ({"environment": "openenv"}, "UnknownEnvironment", "spec.environment", "an RLEnvironment with spec.openenv"),
        ({"activeDeadlineSeconds": 601}, "OutOfBounds", "spec.activeDeadlineSeconds", "at most 600"),
    ],
)
def test_refused(spec: dict[str, Any], code: str, field: str, hint: str) -> None:
    [refusal] = check(spec)
    assert (refusal.code, refusal.field) == (code, field)
    assert re.search(hint, refusal.hint), refusal.hint


def test_an_environment_of_an_absent_library_is_refused_with_what_to_do() -> None:
    absent = TOY.with_changes(absent=(AbsentFamily(name="verifiers", hint="install it: rlctl environments install"),))
    [refusal] = check({"environment": "verifiers/echo"}, catalog=absent)
    assert (refusal.code, refusal.field) == ("UnknownEnvironment", "spec.environment")
    assert refusal.hint == "install it: rlctl environments install"
    [other] = check({"environment": "verifier/echo"}, catalog=absent)
    assert "there is no such environment" in other.hint
