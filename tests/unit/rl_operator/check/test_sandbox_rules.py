"""How long a sandbox lasts, against how long a rollout may take. The other rules: tests/data/refusals.yaml."""

from typing import Any

import pytest
from tests.unit.rl_operator.check.lab import check
from tests.unit.rl_operator.samples import CATALOG, catalog_of, make_run, make_runtime, own_environment, own_inputs

from rl_operator.api.catalog import Catalog
from rl_operator.api.run_inputs import UNSET_WORKER_TIMEOUT, WORKER_TIMEOUT
from rl_operator.check.run_check import check_run
from rl_operator.check.sandbox_rules import TERMINAL_BACKEND

RUNTIME = make_runtime(sandbox={"maxTimeoutSeconds": 900})
TOOLS: dict[str, Any] = {"name": "terminal_backend", "type": "str | None", "default": None}
SECONDS = {"name": "rollout_seconds", "type": "float", "default": 600.0, "exclusiveMinimum": 0}
GROUP: dict[str, Any] = {"name": "worker_timeout", "type": "float", "default": 600}
AGENT = catalog_of(TOOLS, SECONDS, GROUP)
HASTY_AGENT = catalog_of(TOOLS, SECONDS, GROUP | {"default": 300})
UNKNOWN_DEFAULT = catalog_of(TOOLS, {"name": "rollout_seconds", "type": "float"}, GROUP | {"default": 300})
HARNESS = catalog_of(SECONDS, GROUP)
NO_LIMIT = catalog_of(TOOLS)


@pytest.mark.parametrize(
    ("catalog", "config", "sandbox"),
    [
        (AGENT, {}, {}),
        (AGENT, {}, {"timeoutSeconds": 600}),
        (AGENT, {"rollout_seconds": 900}, {}),
        (AGENT, {"rollout_seconds": 60}, {"timeoutSeconds": 60}),
        (AGENT, {"rollout_seconds": 1200, "worker_timeout": 900}, {"timeoutSeconds": 900}),
        (AGENT, {"worker_timeout": 60}, {"timeoutSeconds": 60}),
        (AGENT, {"worker_timeout": -1}, {"timeoutSeconds": 600}),
        (HASTY_AGENT, {}, {"timeoutSeconds": 300}),
        (UNKNOWN_DEFAULT, {}, {"timeoutSeconds": 1}),
        (NO_LIMIT, {}, {"timeoutSeconds": 1}),
        (HARNESS, {"rollout_seconds": 901}, {"timeoutSeconds": 1}),
    ],
)
def test_a_sandbox_that_lasts_is_accepted(catalog: Catalog, config: dict[str, Any], sandbox: dict[str, Any]) -> None:
    assert check({"config": config, "sandbox": sandbox}, RUNTIME, catalog) == ()


SHORT = (
    "spec.sandbox.timeoutSeconds is {0}: a rollout may take {1} s (spec.config.{3}) and would lose its sandbox: "
    "set it to at least {2}, leave it out, or lower spec.config.{3}"
)
LONG = (
    "spec.config.%s is 901: runtime 'lab' ends a sandbox after at most 900 s, before such a rollout is over: "
    "set it to 900 or less"
)
BOTH = {"rollout_seconds": 1200, "worker_timeout": 901}


@pytest.mark.parametrize(
    ("config", "sandbox", "sentence", "allowed"),
    [
        ({}, {"timeoutSeconds": 599}, SHORT.format(599, 600, 600, "rollout_seconds"), {"min": 600, "max": 900}),
        (
            {"rollout_seconds": 90.5},
            {"timeoutSeconds": 90},
            SHORT.format(90, 90.5, 91, "rollout_seconds"),
            {"min": 91, "max": 900},
        ),
        ({"rollout_seconds": 901}, {}, LONG % "rollout_seconds", {"max": 900}),
        ({"rollout_seconds": 901}, {"timeoutSeconds": 900}, LONG % "rollout_seconds", {"max": 900}),
        (BOTH, {}, LONG % "worker_timeout", {"max": 900}),
        (
            {"worker_timeout": 300},
            {"timeoutSeconds": 299},
            SHORT.format(299, 300, 300, "worker_timeout"),
            {"min": 300, "max": 900},
        ),
        (  # atroposlib's default bounds nothing, wherever it was set
            {"rollout_seconds": 700, "worker_timeout": 600},
            {"timeoutSeconds": 600},
            SHORT.format(600, 700, 700, "rollout_seconds"),
            {"min": 700, "max": 900},
        ),
    ],
)
def test_one_that_ends_within_a_rollout_is_refused(
    config: dict[str, Any], sandbox: dict[str, Any], sentence: str, allowed: dict[str, int]
) -> None:
    [refusal] = check({"config": config, "sandbox": sandbox}, RUNTIME, AGENT)
    assert (refusal.sentence, refusal.allowed) == (sentence, allowed)


LOCKED_SHORT = (
    "spec.sandbox.timeoutSeconds is 699: a rollout may take 700 s (spec.config.rollout_seconds) and would lose its "
    "sandbox: set it to at least 700, or leave it out"
)
LOCKED_LONG = (
    "spec.config.rollout_seconds is 901: runtime 'lab' ends a sandbox after at most 900 s, before such a rollout is "
    "over: the runtime locks it, so choose another one"
)


@pytest.mark.parametrize(
    ("locked", "sandbox", "sentence", "allowed"),
    [
        (700, {"timeoutSeconds": 699}, LOCKED_SHORT, {"min": 700, "max": 900}),
        (901, {}, LOCKED_LONG, None),
    ],
)
def test_what_the_runtime_locks_is_not_the_runs_to_lower(
    locked: int, sandbox: dict[str, Any], sentence: str, allowed: dict[str, int] | None
) -> None:
    runtime = make_runtime(sandbox={"maxTimeoutSeconds": 900}, locked={"env": {"rollout_seconds": locked}})
    [refusal] = check({"sandbox": sandbox}, runtime, AGENT)
    assert (refusal.sentence, refusal.allowed) == (sentence, allowed)


def test_a_runtimes_default_bounds_a_rollout_like_the_runs_own_value() -> None:
    """The environment cannot tell who set it."""
    runtime = make_runtime(sandbox={}, defaults={"env": {"worker_timeout": 60}})
    assert check({"sandbox": {"timeoutSeconds": 60}}, runtime, AGENT) == ()
    assert check({"sandbox": {"timeoutSeconds": 59}}, runtime, AGENT) != ()


def test_the_rule_knows_the_fields_of_the_bundled_agents() -> None:
    agents = [each.fields_by_name for each in CATALOG.environments if TERMINAL_BACKEND in each.fields_by_name]
    assert len(agents) == 2
    assert {fields[WORKER_TIMEOUT].default for fields in agents} == {UNSET_WORKER_TIMEOUT}


@pytest.mark.parametrize("seconds", ["long", True, -1, None])
def test_a_value_that_is_no_time_is_refused_only_as_such(seconds: Any) -> None:
    [refusal] = check({"config": {"rollout_seconds": seconds}, "sandbox": {"timeoutSeconds": 1}}, RUNTIME, AGENT)
    assert refusal.field == "spec.config.rollout_seconds"


@pytest.mark.parametrize(
    ("config", "fields"), [({"rollout_seconds": 60}, ["spec.sandbox.timeoutSeconds"]), ({}, [])], ids=["set", "unset"]
)
def test_of_an_environment_whose_fields_are_not_known_the_runs_own_value_counts(
    config: dict[str, Any], fields: list[str]
) -> None:
    own = own_environment()
    unread = own.with_changes(status=own.status.with_changes(fields=()))
    shared = {"total_steps": 1, "group_size": 2, "batch_size": 2, "max_token_length": 8, "tokenizer_name": "bundled"}
    run = make_run(environment="own/digits", config=shared | config, sandbox={"timeoutSeconds": 59})
    assert [refusal.field for refusal in check_run(run, own_inputs(run, RUNTIME, unread))] == fields
