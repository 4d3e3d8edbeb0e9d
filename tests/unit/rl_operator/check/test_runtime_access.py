from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.rl_operator.samples import CATALOG, make_run, make_runtime

from rl_operator.api.environment import Environment
from rl_operator.api.names import API_VERSION, ENVIRONMENT_KIND
from rl_operator.api.refusal import Refusal
from rl_operator.api.run_inputs import RunInputs, choose_environment
from rl_operator.api.runtime import LabelSelector
from rl_operator.check import check_run
from rl_operator.check.runtime_access import selects
from rl_operator.documents.parse import parse_environment

LABELS = {"team": "ml", "stage": "prod"}


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        ({}, True),
        ({"matchLabels": {"team": "ml"}}, True),
        ({"matchLabels": {"team": "ml", "stage": "dev"}}, False),
        ({"matchLabels": {"owner": "ml"}}, False),
        ({"matchLabels": {"owner": ""}}, False),
        ({"matchExpressions": [requirement("team", "In", "web", "ml")]}, True),
        ({"matchExpressions": [requirement("team", "In", "web")]}, False),
        ({"matchExpressions": [requirement("owner", "In", "ml")]}, False),
        ({"matchExpressions": [requirement("team", "NotIn", "web")]}, True),
        ({"matchExpressions": [requirement("team", "NotIn", "web", "ml")]}, False),
        ({"matchExpressions": [requirement("owner", "NotIn", "ml")]}, True),
        ({"matchExpressions": [requirement("team", "Exists")]}, True),
        ({"matchExpressions": [requirement("owner", "Exists")]}, False),
        ({"matchExpressions": [requirement("owner", "DoesNotExist")]}, True),
        ({"matchExpressions": [requirement("team", "DoesNotExist")]}, False),
        ({"matchExpressions": [requirement("team", "Exists"), requirement("stage", "In", "dev")]}, False),
        ({"matchLabels": {"team": "web"}, "matchExpressions": [requirement("stage", "Exists")]}, False),
    ],
    ids=str,
)
def test_selectors_mean_the_same_as_in_kubernetes(selector: dict[str, Any], taken: bool) -> None:
    assert selects(LabelSelector.model_validate(selector), LABELS) is taken


WORDS = st.sampled_from(["", "a", "b", "team", "stage"])
SELECTORS = st.builds(
    LabelSelector,
    match_labels=st.dictionaries(WORDS, WORDS, max_size=2),
    match_expressions=st.lists(
        st.builds(
            dict,
            key=st.sampled_from(["a", "b", "team"]),
            operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
            values=st.lists(WORDS, max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
)


@given(SELECTORS, st.dictionaries(WORDS, WORDS, max_size=3))
def test_an_operator_and_its_opposite_never_both_match(selector: LabelSelector, labels: dict[str, str]) -> None:
    opposite = {"In": "NotIn", "NotIn": "In", "Exists": "DoesNotExist", "DoesNotExist": "Exists"}
    for expression in selector.match_expressions:
        turned = expression.with_changes(operator=opposite[expression.operator])
        one, other = LabelSelector(match_expressions=(expression,)), LabelSelector(match_expressions=(turned,))
        assert selects(one, labels) != selects(other, labels)


def test_a_namespace_that_is_not_selected_is_refused() -> None:
    run, selector = make_run(runtime="lab"), {"matchLabels": {"team": "ml"}}
    runtime = make_runtime(namespaceSelector=selector)
    environment = choose_environment("sort_digits", runtime, CATALOG, None)
    assert "NamespaceNotAllowed" not in {r.code for r in check_run(run, RunInputs(runtime, environment, LABELS))}
    [refusal] = [
        r for r in check_run(run, RunInputs(runtime, environment, {"team": "web"})) if r.code == "NamespaceNotAllowed"
    ]
    assert (refusal.field, refusal.given) == ("spec.runtime", "lab")
    assert refusal.allowed == {"matchLabels": {"team": "ml"}, "matchExpressions": []}
    assert refusal.sentence == (
        'spec.runtime is "lab": '
        "its namespaceSelector does not match the labels of this run's namespace: "
        "choose another runtime, or ask an administrator for access"
    )


def own_environment(*secrets: tuple[str, str]) -> Environment:
    spec = {
        "source": {"configMap": {"name": "code"}},
        "secretEnvironment": [{"name": name, "key": key} for name, key in secrets],
    }
    return parse_environment(
        {"apiVersion": API_VERSION, "kind": ENVIRONMENT_KIND, "metadata": {"name": "mine"}, "spec": spec}
    )


def refused_secrets(listed: list[dict[str, str]], *asked: tuple[str, str]) -> list[Refusal]:
    run, runtime = make_run(runtime="lab", environment="own/mine"), make_runtime(secretEnvironment=listed)
    environment = choose_environment("own/mine", runtime, None, own_environment(*asked))
    return [r for r in check_run(run, RunInputs(runtime, environment)) if r.code == "SecretNotAllowed"]


JUDGE = {"name": "judge", "key": "JUDGE_KEY"}


def test_an_own_environment_gets_only_listed_keys() -> None:
    assert refused_secrets([]) == []
    assert refused_secrets([JUDGE, {"name": "search", "key": "K"}], ("judge", "JUDGE_KEY")) == []
    [refusal] = refused_secrets([JUDGE], ("judge", "JUDGE_KEY"), ("judge", "OTHER"), ("tinker", "JUDGE_KEY"))
    assert (refusal.field, refusal.given, refusal.allowed) == ("spec.environment", "own/mine", [JUDGE])
    assert refusal.sentence == (
        'spec.environment is "own/mine": its secretEnvironment asks for key OTHER of Secret judge, '
        "key JUDGE_KEY of Secret tinker, and runtime 'lab' lists key JUDGE_KEY of Secret judge: "
        "take it out of the RLEnvironment, or ask an administrator to list it"
    )


def test_a_runtime_that_lists_no_key_says_so() -> None:
    [refusal] = refused_secrets([], ("judge", "JUDGE_KEY"))
    assert "runtime 'lab' lists no key:" in refusal.hint
