import re
from typing import Any

import pytest
from tests.unit.rl_operator.check.lab import TOY, check
from tests.unit.rl_operator.samples import make_runtime

from rl_operator.api.catalogue import Catalogue


@pytest.mark.parametrize(
    ("spec", "code", "field", "hint"),
    [
        ({"startFrom": {}}, "Inconsistent", "spec.startFrom", "exactly one of run and statePath"),
        ({"environment": "toi"}, "UnknownEnvironment", "spec.environment", "did you mean 'toy'.*available: toy"),
        ({"environment": "own/mine"}, "NotSupported", "spec.environment", "bundled ones: toy"),
        (
            {"environment": "./mine.py"},
            "NotSupported",
            "spec.environment",
            "environments in files are not supported yet",
        ),
        ({"environment": "own/mine.py"}, "NotSupported", "spec.environment", "not supported yet"),
        ({"environmentReplicas": 2}, "NotSupported", "spec.environmentReplicas", "one environment process"),
        ({"ttlSecondsAfterFinished": 0}, "NotSupported", "spec.ttlSecondsAfterFinished", "leave the field out"),
        ({"startFrom": {"run": "a"}}, "NotSupported", "spec.startFrom.run", "statePath"),
        (
            {"startFrom": {"statePath": "tinker://x", "withOptimizer": True}},
            "NotSupported",
            "spec.startFrom.withOptimizer",
            "leave the field out",
        ),
        ({"activeDeadlineSeconds": 601}, "OutOfBounds", "spec.activeDeadlineSeconds", "at most 600"),
    ],
)
def test_refused(spec: dict[str, Any], code: str, field: str, hint: str) -> None:
    [refusal] = check(spec)
    assert (refusal.code, refusal.field) == (code, field)
    assert re.search(hint, refusal.hint), refusal.hint


def test_a_local_file_in_the_catalogue_is_accepted() -> None:
    [toy] = TOY.environments
    catalogue = Catalogue(environments=(toy.with_changes(name="./mine.py"),))
    assert check({"environment": "./mine.py"}, catalogue=catalogue) == ()


@pytest.mark.parametrize(
    "promise", [{"namespaceSelector": {"matchLabels": {"team": "a"}}}, {"limits": {"maxActiveRuns": 3}}]
)
def test_a_runtime_that_promises_what_nothing_enforces_is_refused(promise: dict[str, Any]) -> None:
    [refusal] = check({}, make_runtime(**promise))
    assert (refusal.code, refusal.field) == ("NotSupported", "spec.runtime")
    assert next(iter(promise)) in refusal.hint
