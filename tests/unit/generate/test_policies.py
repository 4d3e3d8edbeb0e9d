"""The shape of the policies; integration/cluster/test_policies.py tests their effect on real API servers."""

import json
from typing import Any

import pytest

from generate.cel import filled, literal
from generate.policies import policy_documents
from rl_operator.api.settings.fields import LARGEST, SMALLEST, WIRED_FIELDS

RUNS, RUNS_BINDING, RUNTIMES, RUNTIMES_BINDING = policy_documents()


def variables(policy: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["expression"] for variable in policy["spec"]["variables"]}


@pytest.mark.parametrize("policy", [RUNS, RUNTIMES], ids=["runs", "runtimes"])
def test_only_runs_and_no_subresources(policy: dict[str, Any]) -> None:
    [rule] = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["rltrainingruns"], ["CREATE", "UPDATE"])
    conditions = {condition["name"] for condition in policy["spec"]["matchConditions"]}
    assert "not-deleted" in conditions


def test_every_binding_denies_and_names_its_policy() -> None:
    for policy, binding in ((RUNS, RUNS_BINDING), (RUNTIMES, RUNTIMES_BINDING)):
        assert binding["spec"]["policyName"] == policy["metadata"]["name"]
        assert binding["spec"]["validationActions"] == ["Deny"]
    assert RUNTIMES_BINDING["spec"]["paramRef"] == {"selector": {}, "parameterNotFoundAction": "Allow"}


def test_the_policy_with_parameters_fails_open_and_the_other_closed() -> None:
    assert (RUNS["spec"]["failurePolicy"], RUNTIMES["spec"]["failurePolicy"]) == ("Fail", "Ignore")
    assert "paramKind" not in RUNS["spec"]


def test_every_row_of_the_tables_is_in_the_policy() -> None:
    rules = variables(RUNS)
    for (section, name), instead in WIRED_FIELDS.items():
        settings = {"env": "config", "trainer": "trainer"}.get(section)
        if settings:
            assert f"{literal(name)}: {literal(instead)}" in rules[f"wired_{settings}"]
    for (section, name), smallest in SMALLEST.items():
        rule = rules["too_small_config" if section == "env" else "too_small_trainer"]
        assert f"{literal(name.rpartition('.')[2])}: {smallest.value}" in rule
    for (section, name), largest in LARGEST.items():
        rule = rules["too_large_config" if section == "env" else "too_large_trainer"]
        assert f"{literal(name.rpartition('.')[2])}: {largest}" in rule


def test_policies_fit_in_an_annotation_of_kubectl_apply() -> None:
    assert all(len(json.dumps(document)) < 200_000 for document in policy_documents())


def test_templates_become_parts() -> None:
    assert filled("a %s b %s", "x", "[y]") == '[dyn("a "), dyn(x), dyn(" b "), dyn([y])]'
    assert filled("no parts") == '[dyn("no parts")]'
