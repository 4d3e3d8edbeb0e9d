"""What the admission policies refuse, and their messages. No operator takes part."""

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.integration.cluster.admin import RUNTIMES, AdminClient
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.cluster.policies import door
from tests.integration.cluster.polling import wait_for
from tests.refusals import ROWS, Row, runtimes

from generate.policies import MAX_MESSAGE
from rl_operator.api import hints
from rl_operator.api.refusal import Refusal, field_path, looks_like_a_key, redacted
from rl_operator.api.value_text import text_of
from rl_operator.check.run_check import selects
from rl_operator.documents.parse import parse_runtime
from rl_operator.documents.yaml_text import json_value

NAMESPACE = "policies"

_numbers = itertools.count(1)
LOCK = "the lock"
LOCKED_VALUES = [None, True, 8, 2**53, 0.1, 4e-5, 1234567.5, "8", "x" * 300, [1, 4e-5, "a"], {"b": [0.5], "a": None}]


def lab(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLRuntime",
        "metadata": {"name": name},
        "spec": {"image": "i", **spec},
    }


def run(runtime: str, **spec: Any) -> dict[str, Any]:
    return Row(code="", spec={"runtime": runtime, **spec}).run()


@pytest.fixture(scope="module")
def admin(guarded_plane: ControlPlane) -> AdminClient:
    admin = guarded_plane.admin
    admin.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": {"team": "a", "stage": "test"}}})
    for document in runtimes():
        admin.post(RUNTIMES, document)
    admin.post(RUNTIMES, lab("value", locked={"env": {"v": LOCK}}))
    admin.post(RUNTIMES, lab("values", locked={"env": {f"v{i}": value for i, value in enumerate(LOCKED_VALUES)}}))
    admin.post(RUNTIMES, lab("wide", locked={"env": {f"v{i}": i for i in range(200)}}))
    wait_for("the last runtime is known to the policy", lambda: door(admin, NAMESPACE, run("wide", config={"v1": 2})))
    return admin


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_admission(admin: AdminClient, row: Row) -> None:
    said = door(admin, NAMESPACE, row.run())
    match row.first:
        case "schema":
            assert row.door in said
        case "policy":
            assert said is not None
            assert row.fits(said, NAMESPACE), said
        case "operator":
            assert said is None


# For new characters it depends on the Unicode version whether they are printable: Python's and Go's differ.
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cn")))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)


def locked_sentence(runtime: str, name: str, value: Any, lock: Any) -> str:
    hint = hints.LOCKED % (runtime, text_of(redacted(lock)))
    path = field_path(("spec", "config", name))
    return Refusal(code="LockedField", field=path, given=redacted(value, name), hint=hint).sentence


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON)
def test_any_value_is_formatted_as_by_the_operator(admin: AdminClient, value: Any) -> None:
    assume(value != LOCK)
    stored = json_value(value)  # as kubectl sends it
    said = door(admin, NAMESPACE, run("value", config={"v": stored}))
    if looks_like_a_key(stored):  # both policies refuse it, and either message may come
        assert said in (f"spec.config.v: {hints.KEY_IN_RUN}", locked_sentence("value", "v", stored, LOCK))
    else:
        assert said == locked_sentence("value", "v", stored, LOCK)


@pytest.mark.parametrize(("number", "lock"), list(enumerate(LOCKED_VALUES)))
def test_any_lock_is_formatted_as_by_the_operator_and_its_equal_passes(
    admin: AdminClient, number: int, lock: Any
) -> None:
    name = f"v{number}"
    said = door(admin, NAMESPACE, run("values", config={name: "other"}))
    assert said == locked_sentence("values", name, "other", lock)
    assert door(admin, NAMESPACE, run("values", config={name: lock})) is None


@pytest.mark.parametrize("name", ["a b", "ü", "x" * 200, 'quo"te', "new\nline", "sk-abc"])
def test_odd_names_are_quoted_as_by_the_operator(admin: AdminClient, name: str) -> None:
    said = door(admin, NAMESPACE, run("value", config={name: "sk-abc"}))
    assert (
        said == Refusal(code="WiredField", field=field_path(("spec", "config", name)), hint=hints.KEY_IN_RUN).sentence
    )


def test_equality_is_that_of_json(admin: AdminClient) -> None:
    equal = {"v2": 8.0, "v9": [1.0, 4e-5, "a"], "v10": {"a": None, "b": [0.5]}}
    assert door(admin, NAMESPACE, run("values", config=equal)) is None
    for name, other in {"v1": 1, "v2": "8", "v2 ": None, "v7": 8, "v9": [4e-5, 1, "a"], "v10": {"b": [1]}}.items():
        assert door(admin, NAMESPACE, run("values", config={name.strip(): other})), (name, other)


def test_of_two_mappings_the_entries_are_compared_since_each_may_be_a_field(admin: AdminClient) -> None:
    """`taskset: {size: 3}` locks one field of the mapping; what else is refused in it, the catalog tells."""
    assert door(admin, NAMESPACE, run("values", config={"v10": {"b": [0.5], "size": 3}})) is None
    lock, given = LOCKED_VALUES[10], {"b": [1], "size": 3}
    assert door(admin, NAMESPACE, run("values", config={"v10": given})) == locked_sentence("values", "v10", given, lock)


def test_several_faults_are_named_at_once(admin: AdminClient) -> None:
    asked = run(
        "refusals-lab", config={"total_steps": 1, "use_wandb": True}, trainer={"seed": 1}, environmentReplicas=9
    )
    said = door(admin, NAMESPACE, asked)
    assert {part.split(" ")[0] for part in said.split("; ")} == {
        "spec.config.total_steps", "spec.config.use_wandb", "spec.trainer.seed", "spec.environmentReplicas",
    }  # fmt: skip


def test_two_hundred_fields_pass_and_two_hundred_faults_fit_in_a_message(admin: AdminClient) -> None:
    right = {f"v{i}": i for i in range(200)}
    assert door(admin, NAMESPACE, run("wide", config=right, trainer={f"t{i}": "x" * 100 for i in range(200)})) is None
    said = door(admin, NAMESPACE, run("wide", config=dict.fromkeys(right, "☃" * 200)))
    assert len(said) == MAX_MESSAGE
    assert said.count("locks it to") > 3


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        ({}, True),
        ({"matchLabels": {"team": "a", "stage": "test"}}, True),
        ({"matchLabels": {"team": "a", "stage": "prod"}}, False),
        ({"matchLabels": {"none": ""}}, False),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["b", "a"]}]}, True),
        ({"matchExpressions": [{"key": "none", "operator": "In", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "none", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}, True),
    ],
)
def test_namespace_selectors(admin: AdminClient, selector: dict[str, Any], taken: bool) -> None:
    name = f"selects-{next(_numbers)}"
    admin.post(RUNTIMES, lab(name, namespaceSelector=selector, locked={"env": {"v": 1}}))
    labels = {"team": "a", "stage": "test"}
    parsed = parse_runtime(lab(name, namespaceSelector=selector)).spec.namespace_selector
    assert parsed is not None
    assert selects(parsed, labels) is taken
    said = wait_for("the runtime is known to the policy", lambda: door(admin, NAMESPACE, run(name, config={"v": 2})))
    assert (hints.NAMESPACE_NOT_ALLOWED in said) is not taken
