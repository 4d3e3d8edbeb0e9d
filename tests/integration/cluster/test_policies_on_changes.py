"""Runs that exist when a lock changes are never stuck, and started runs do not change."""

import itertools
from typing import Any

import pytest
from tests.integration.cluster.admin import RUNS, RUNTIMES, AdminClient
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.cluster.policies import door, refusal_of
from tests.integration.cluster.polling import wait_for
from tests.refusals import Row

NAMESPACE = "changes"
PATH = RUNS.format(namespace=NAMESPACE)
FROZEN = "it is frozen since the run started: make a new run for other settings"

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def admin_of_changes(guarded_plane: ControlPlane) -> AdminClient:
    guarded_plane.admin.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    return guarded_plane.admin


def body(name: str, runtime: str, **spec: Any) -> dict[str, Any]:
    settings = {"group_size": 8, "batch_size": 8}
    return Row(code="", spec={"runtime": runtime, "config": settings, "environmentReplicas": 2, **spec}).run(name)


def runtime_body(name: str, **spec: Any) -> dict[str, Any]:
    kind = {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLRuntime"}
    return {**kind, "metadata": {"name": name}, "spec": {"image": "i", **spec}}


@pytest.fixture
def overtaken(admin_of_changes: AdminClient) -> str:
    """A stored run whose runtime changed its locks and limits after it was created. Its runtime has its name."""
    name = f"overtaken-{next(_numbers)}"
    admin_of_changes.post(RUNTIMES, runtime_body(name, sandbox={}))
    admin_of_changes.post(PATH, body(name, name, sandbox={"size": 2}))
    locked = {"locked": {"env": {"group_size": 4}}, "limits": {"environmentReplicas": 1}, "sandbox": None}
    admin_of_changes.patch(
        f"{RUNTIMES}/{name}", {"spec": {**locked, "namespaceSelector": {"matchLabels": {"team": "x"}}}}
    )
    wait_for("the lock is known to the policy", lambda: door(admin_of_changes, NAMESPACE, body("other", name)))
    return name


def refusal(admin: AdminClient, name: str, patch: dict[str, Any]) -> str | None:
    return refusal_of(lambda: admin.patch(f"{PATH}/{name}", patch))


def start(admin: AdminClient, name: str) -> None:
    admin.patch(f"{PATH}/{name}/status", {"status": {"startTime": "2026-01-01T00:00:00Z"}})


@pytest.mark.parametrize("started", [False, True], ids=["draft", "started"])
def test_a_changed_lock_leaves_existing_runs_alone(
    admin_of_changes: AdminClient, overtaken: str, started: bool
) -> None:
    if started:
        start(admin_of_changes, overtaken)
    for patch in (
        {"spec": {"suspend": True}},
        {"spec": {"suspend": False}},
        {"spec": {"progressDeadlineSeconds": 60, "ttlSecondsAfterFinished": 5}},
        {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}},
        {"metadata": {"finalizers": ["example.com/held"]}},
    ):
        assert refusal(admin_of_changes, overtaken, patch) is None, patch
    admin_of_changes.patch(f"{PATH}/{overtaken}/status", {"status": {"phase": "Failed"}})

    admin_of_changes.delete(f"{PATH}/{overtaken}")
    held = admin_of_changes.get(f"{PATH}/{overtaken}")
    assert held["metadata"]["deletionTimestamp"]
    assert refusal(admin_of_changes, overtaken, {"spec": {"config": {"group_size": 9}}}) is None
    assert refusal(admin_of_changes, overtaken, {"metadata": {"finalizers": None}}) is None
    assert admin_of_changes.find(f"{PATH}/{overtaken}") is None


def test_an_edited_draft_is_checked_against_the_current_lock(admin_of_changes: AdminClient, overtaken: str) -> None:
    said = refusal(admin_of_changes, overtaken, {"spec": {"config": {"batch_size": 16}}})
    assert f"spec.config.group_size is 8: runtime '{overtaken}' locks it to 4" in said
    assert "environmentReplicas" not in said
    assert "sandbox" not in said
    assert "namespaceSelector" not in said
    assert refusal(admin_of_changes, overtaken, {"spec": {"config": {"group_size": 4}}}) is None


def test_a_limit_is_checked_when_its_field_changes(admin_of_changes: AdminClient, overtaken: str) -> None:
    start(admin_of_changes, overtaken)
    said = refusal(admin_of_changes, overtaken, {"spec": {"environmentReplicas": 3}})
    assert said == f"spec.environmentReplicas is 3: runtime '{overtaken}' allows at most 1"
    assert refusal(admin_of_changes, overtaken, {"spec": {"environmentReplicas": 1}}) is None


def test_a_sandbox_is_checked_when_it_changes(admin_of_changes: AdminClient, overtaken: str) -> None:
    said = refusal(admin_of_changes, overtaken, {"spec": {"sandbox": {"size": 1}}})
    assert said.startswith(f"spec.sandbox: runtime '{overtaken}' has no sandboxes")
    assert refusal(admin_of_changes, overtaken, {"spec": {"sandbox": None}}) is None


BUDGET = {"amount": 20, "currency": "USD"}


def test_a_budget_may_be_changed_after_the_start_and_needs_prices(
    admin_of_changes: AdminClient, overtaken: str
) -> None:
    start(admin_of_changes, overtaken)
    refused = refusal(admin_of_changes, overtaken, {"spec": {"budget": BUDGET}})
    assert f"runtime '{overtaken}' has no prices (its spec.backend.prices)" in refused
    prices = {"prefill": 0.1, "sample": 0.4, "train": 0.4}
    admin_of_changes.patch(f"{RUNTIMES}/{overtaken}", {"spec": {"backend": {"prices": prices}}})
    wait_for(
        "the prices are known to the policy",
        lambda: refusal(admin_of_changes, overtaken, {"spec": {"budget": BUDGET}}) is None,
    )
    assert refusal(admin_of_changes, overtaken, {"spec": {"budget": {"amount": 30.5}}}) is None
    other = refusal(admin_of_changes, overtaken, {"spec": {"budget": {"currency": "EUR"}}})
    assert other.startswith(f"spec.budget.currency is \"EUR\": the prices of runtime '{overtaken}'")
    assert refusal(admin_of_changes, overtaken, {"spec": {"budget": None}}) is None


def test_a_draft_with_a_new_runtime_is_checked_against_that_one(admin_of_changes: AdminClient, overtaken: str) -> None:
    free = f"free-{next(_numbers)}"
    admin_of_changes.post(RUNTIMES, runtime_body(free))
    admin_of_changes.post(PATH, body(free, free))
    said = refusal(admin_of_changes, free, {"spec": {"runtime": overtaken}})
    for field in ("spec.config.group_size is 8", "spec.environmentReplicas is 2", "spec.runtime is"):
        assert field in said


@pytest.mark.parametrize("settings", ["config", "trainer"])
def test_free_form_settings_are_frozen_after_the_start(admin_of_changes: AdminClient, settings: str) -> None:
    name = f"frozen-{next(_numbers)}"
    admin_of_changes.post(PATH, body(name, "nobodys", **{settings: {"a": 1, "b": {"c": [1]}}}))
    assert refusal(admin_of_changes, name, {"spec": {settings: {"a": 2}}}) is None
    start(admin_of_changes, name)
    for change in ({"a": 3}, {"a": None}, {"d": 1}, {"b": {"c": [1, 2]}}, None):
        assert refusal(admin_of_changes, name, {"spec": {settings: change}}) == f"spec.{settings}: {FROZEN}"
    assert refusal(admin_of_changes, name, {"spec": {settings: {"a": 2.0, "b": {"c": [1.0]}}}}) is None
    assert refusal(admin_of_changes, name, {"spec": {"suspend": True}}) is None
