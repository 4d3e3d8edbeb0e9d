"""Refused runs say why, start nothing, and start as soon as the mistake is fixed."""

from dataclasses import dataclass
from typing import Any

import pytest
from tests.integration.cluster.admin import RUNTIMES, ApiError
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace, install_runtime


@dataclass(frozen=True)
class Case:
    """The spec, the refusal with a word that must be in it, and the edit that fixes it (null removes)."""

    spec: dict[str, Any]
    code: str
    field: str
    word: str
    fix: dict[str, Any]


REFUSALS = {
    "a locked field": Case(
        {"config": {"tokenizer_name": "gpt2"}}, "LockedField", "spec.config.tokenizer_name", "bundled",
        {"config": {"tokenizer_name": None}},
    ),
    "a wired field": Case(
        {"config": {"rollout_server_url": "http://x"}}, "WiredField", "spec.config.rollout_server_url", "",
        {"config": {"rollout_server_url": None}},
    ),
    "an unknown field": Case(
        {"config": {"group_sise": 8}}, "UnknownField", "spec.config.group_sise", "group_size",
        {"config": {"group_sise": None}},
    ),
    "a wrong type": Case(
        {"config": {"total_steps": "many"}}, "WrongType", "spec.config.total_steps", "",
        {"config": {"total_steps": TOTAL_STEPS}},
    ),
    "settings that fit into no ConfigMap": Case(
        {"config": {"wandb_name": ["x" * 49_000] * 20}}, "OutOfBounds", "spec.config", "200 kB",
        {"config": {"wandb_name": None}},
    ),
    "an unknown environment": Case(
        {"environment": "sort_digit"}, "UnknownEnvironment", "spec.environment", "sort_digits",
        {"environment": "sort_digits"},
    ),
    "an unknown runtime": Case(
        {"runtime": "tinny"}, "RuntimeNotFound", "spec.runtime", "tiny", {"runtime": "tiny"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_refusal_and_its_fix(runs: RunsNamespace, case: Case) -> None:
    runs.apply(**case.spec)
    status = runs.until_phase("Pending")
    first = status["refusals"][0]
    assert (first["code"], first["field"]) == (case.code, case.field)
    assert case.word in str(first)
    conditions = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
    assert conditions == {"Accepted": ("False", case.code), "Stalled": ("True", case.code)}
    assert not runs.kubelet.pods()

    runs.edit(**case.fix)
    runs.succeed(runs.until_pod())
    assert "refusals" not in runs.status() or not runs.status()["refusals"]


def test_a_runtime_created_later_lets_the_run_start(runs: RunsNamespace) -> None:
    runtime = f"late-{runs.namespace}"
    runs.apply(runtime=runtime)
    assert runs.until_phase("Pending")["refusals"][0]["code"] == "RuntimeNotFound"
    install_runtime(runs.admin, "tiny", name=runtime)
    runs.succeed(runs.until_pod())


def test_a_runtime_that_unlocks_lets_the_run_start(runs: RunsNamespace) -> None:
    runtime = f"strict-{runs.namespace}"
    install_runtime(runs.admin, "tiny", name=runtime, locked={"env": {"group_size": 4}})
    runs.apply(runtime=runtime, config={"total_steps": TOTAL_STEPS, "group_size": 8})
    refusal = runs.until_phase("Pending")["refusals"][0]
    assert (refusal["code"], refusal["given"], refusal["locked"]) == ("LockedField", 8, 4)
    runs.admin.patch(f"{RUNTIMES}/{runtime}", {"spec": {"locked": {"env": {"group_size": None}}}})
    runs.succeed(runs.until_pod())


def test_an_unrelated_object_with_the_pods_name_is_named_and_waited_for(runs: RunsNamespace) -> None:
    run = runs.apply(suspend=True)
    runs.until_phase("Draft")
    name = f"sorting-{run['metadata']['uid'][:5]}-1"
    stranger = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    path = f"/api/v1/namespaces/{runs.namespace}/pods"
    runs.admin.post(path, stranger)
    runs.edit(suspend=False)
    condition = wait_for(
        "NameTaken is said",
        lambda: (c := runs.condition("Reconciling")) and c["reason"] == "NameTaken" and c,
    )
    assert name in condition["message"]
    assert "rename" in condition["message"]

    runs.admin.delete(f"{path}/{name}", {"gracePeriodSeconds": 0})
    wait_for(
        "the run's own pod is there", lambda: (runs.kubelet.pod(name) or {"spec": {}})["spec"].get("initContainers")
    )
    runs.succeed(name)


def test_after_the_start_the_spec_is_frozen(runs: RunsNamespace) -> None:
    runs.apply()
    runs.until_pod()
    with pytest.raises(ApiError) as refused:
        runs.edit(environment="gsm8k")
    assert refused.value.code == 422
    assert "environment" in refused.value.message
