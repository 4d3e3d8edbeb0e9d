"""How long a sandbox lasts, against how long a rollout may take. The other rules: tests/data/refusals.yaml."""

from typing import Any

import pytest
from tests.unit.rl_operator.check.lab import check
from tests.unit.rl_operator.samples import catalog_of, make_run, make_runtime, own_environment, own_inputs

from rl_operator.api.catalog import Catalog
from rl_operator.check import check_run

RUNTIME = make_runtime(sandbox={"maxTimeoutSeconds": 900})
AGENT = catalog_of({"name": "rollout_seconds", "type": "float", "default": 600.0, "exclusiveMinimum": 0})
UNKNOWN_DEFAULT = catalog_of({"name": "rollout_seconds", "type": "float"})
NO_LIMIT = catalog_of()


@pytest.mark.parametrize(
    ("catalog", "config", "sandbox"),
    [
        (AGENT, {}, {}),
        (AGENT, {}, {"timeoutSeconds": 600}),
        (AGENT, {"rollout_seconds": 900}, {}),
        (AGENT, {"rollout_seconds": 60}, {"timeoutSeconds": 60}),
        (UNKNOWN_DEFAULT, {}, {"timeoutSeconds": 1}),
        (NO_LIMIT, {}, {"timeoutSeconds": 1}),
    ],
)
def test_a_sandbox_that_lasts_is_accepted(catalog: Catalog, config: dict[str, Any], sandbox: dict[str, Any]) -> None:
    assert check({"config": config, "sandbox": sandbox}, RUNTIME, catalog) == ()


SHORT = (
    "spec.sandbox.timeoutSeconds is %s: a rollout may take %s s (spec.config.rollout_seconds) and would lose its "
    "sandbox: set it to at least %d, leave it out, or lower spec.config.rollout_seconds"
)
LONG = (
    "spec.config.rollout_seconds is 901: runtime 'lab' ends a sandbox after at most 900 s, before such a rollout is "
    "over: set it to 900 or less"
)


@pytest.mark.parametrize(
    ("config", "sandbox", "sentence", "allowed"),
    [
        ({}, {"timeoutSeconds": 599}, SHORT % (599, 600, 600), {"min": 600, "max": 900}),
        ({"rollout_seconds": 90.5}, {"timeoutSeconds": 90}, SHORT % (90, 90.5, 91), {"min": 91, "max": 900}),
        ({"rollout_seconds": 901}, {}, LONG, {"max": 900}),
        ({"rollout_seconds": 901}, {"timeoutSeconds": 900}, LONG, {"max": 900}),
    ],
)
def test_one_that_ends_within_a_rollout_is_refused(
    config: dict[str, Any], sandbox: dict[str, Any], sentence: str, allowed: dict[str, int]
) -> None:
    [refusal] = check({"config": config, "sandbox": sandbox}, RUNTIME, AGENT)
    assert (refusal.sentence, refusal.allowed) == (sentence, allowed)


@pytest.mark.parametrize("seconds", ["long", True, -1, None])
def test_a_value_that_is_no_time_is_refused_only_as_such(seconds: Any) -> None:
    [refusal] = check({"config": {"rollout_seconds": seconds}, "sandbox": {"timeoutSeconds": 1}}, RUNTIME, AGENT)
    assert refusal.field == "spec.config.rollout_seconds"


def test_an_own_environment_whose_fields_are_not_known_has_no_limit() -> None:
    own = own_environment()
    unread = own.with_changes(status=own.status.with_changes(fields=()))
    config = {"total_steps": 1, "group_size": 2, "batch_size": 2, "max_token_length": 8, "tokenizer_name": "bundled"}
    run = make_run(environment="own/digits", config=config, sandbox={"timeoutSeconds": 1})
    assert check_run(run, own_inputs(run, RUNTIME, unread)) == ()
