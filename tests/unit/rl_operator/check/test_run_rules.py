import re
from typing import Any

import pytest
from tests.unit.rl_operator.check.lab import LAB, TOY, check

from rl_operator.api.catalog import AbsentFamily
from rl_operator.api.runtime import BackendPrices, Runtime


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


TOKENS = {"prefill": 0.1, "sample": 0.4, "train": 0.4}


def with_prices(**prices: Any) -> Runtime:
    backend = LAB.spec.backend.with_changes(prices=BackendPrices.model_validate(prices))
    return LAB.with_changes(spec=LAB.spec.with_changes(backend=backend))


def test_a_budget_needs_prices() -> None:
    [refusal] = check({"budget": 20})
    assert (refusal.code, refusal.field, refusal.given) == ("Inconsistent", "spec.budget", 20)
    assert "runtime 'lab' has no prices (its spec.backend.prices)" in refusal.hint
    assert check({"budget": 20}, with_prices(**TOKENS)) == ()
    assert check({"budget": 20}, with_prices(models={"bundled": TOKENS})) == ()
    assert check({}) == ()


def test_a_budget_needs_prices_of_the_model() -> None:
    [refusal] = check({"budget": 20}, with_prices(models={"another": TOKENS}))
    assert refusal.field == "spec.budget"
    assert "spec.backend.prices has none for the model bundled" in refusal.hint
