"""Runs that lack what they need, on a real kubelet: each is named for it while it waits, and ends.

They mostly wait, for deadlines and for each other's containers: so all are started at once.
"""

import json
from typing import Any

import pytest
from tests.e2e.conftest import ROOT, Kubectl
from tests.e2e.test_own_environments import ENVIRONMENTS, apply, own_environment, run_of
from tests.e2e.test_sorting import finish

from rl_operator.documents.yaml_text import read_yaml

pytestmark = [
    pytest.mark.timeout(2400),
    pytest.mark.nightly("operator/src/rl_operator/reconcile", "operator/src/rl_operator/status"),
]

NO_IMAGE = {"image": "tinker-atropos:there-is-no-such-tag", "imagePullPolicy": "Never"}
NO_SECRET = {"backend": {"url": "http://tinker-service:8005", "keySecret": {"name": "there-is-none", "key": "api-key"}}}
TIGHT = {"trainer": {"requests": {"cpu": "100m", "memory": "40Mi"}, "limits": {"memory": "40Mi"}}}


def runtime(name: str, **other: Any) -> dict[str, Any]:
    """`tiny`, with other settings."""
    [document] = read_yaml((ROOT / "examples" / "runtime-tiny.yaml").read_text(encoding="utf-8"))
    resources = document["spec"]["resources"] | other.pop("resources", {})
    spec = document["spec"] | {"resources": resources} | other
    return {**document, "metadata": {"name": name}, "spec": spec}


RUNTIMES = (runtime("no-secret", **NO_SECRET), runtime("no-image", **NO_IMAGE), runtime("tight", resources=TIGHT))
RUNS = (
    run_of("no-secret", "sort_digits", runtime="no-secret", startDeadlineSeconds=20),
    run_of("own", "own/walls", runtime="no-image", startDeadlineSeconds=20),
    run_of("bundled", "sort_digits", runtime="no-image"),
    run_of("tight", "sort_digits", runtime="tight", backoffLimit=0),
    run_of("greedy", "own/greedy", backoffLimit=0),
)


def test_what_a_run_lacks_is_named_and_ends_it(installed: Kubectl, namespace: str) -> None:
    kubectl = installed
    greedy = {"limits": {"memory": "400Mi"}}
    environments = (
        *own_environment("walls", ENVIRONMENTS / "walls.py"),
        *own_environment("greedy", ENVIRONMENTS / "eats_memory.py", resources=greedy),
    )
    apply(kubectl, namespace, *RUNTIMES, *environments, *RUNS)
    try:
        a_missing_secret_is_named_at_once_and_meets_the_deadline(kubectl, namespace)
        a_missing_image_is_named_while_waiting_and_at_the_end(kubectl, namespace)
        a_container_that_needs_more_memory_is_named_with_its_limit(kubectl, namespace)
        an_environment_that_eats_memory_ends_its_run_not_the_node(kubectl, namespace)
    finally:
        kubectl("delete", "rlruntime", *(each["metadata"]["name"] for each in RUNTIMES))


def a_missing_secret_is_named_at_once_and_meets_the_deadline(kubectl: Kubectl, namespace: str) -> None:
    until_reason(kubectl, namespace, "no-secret", "SecretMissing")
    assert "kubectl" in status_of(kubectl, namespace, "no-secret")["message"]
    status = finish(kubectl, namespace, "no-secret")["status"]
    assert (status["phase"], status["failure"]["reason"]) == ("Failed", "StartDeadlineExceeded")
    assert "there-is-none" in status["failure"]["message"]


def a_missing_image_is_named_while_waiting_and_at_the_end(kubectl: Kubectl, namespace: str) -> None:
    """Of a bundled environment the image must be read first; own code is known without it, and meets the deadline."""
    status = finish(kubectl, namespace, "own")["status"]
    assert (status["phase"], status["failure"]["reason"]) == ("Failed", "StartDeadlineExceeded")
    assert "image" in status["failure"]["message"].lower()
    until_reason(kubectl, namespace, "bundled", "CatalogPending")
    message = status_of(kubectl, namespace, "bundled")["message"]
    assert "no-image" in message
    assert "there-is-no-such-tag" in message


def a_container_that_needs_more_memory_is_named_with_its_limit(kubectl: Kubectl, namespace: str) -> None:
    failure = finish(kubectl, namespace, "tight")["status"]["failure"]
    assert (failure["reason"], failure["container"]) == ("OOMKilled", "trainer")
    assert "40Mi" in failure["message"]


def an_environment_that_eats_memory_ends_its_run_not_the_node(kubectl: Kubectl, namespace: str) -> None:
    status = finish(kubectl, namespace, "greedy")["status"]
    assert status["phase"] == "Failed"
    assert status["failure"]["container"] == "environment"
    assert status["failure"]["reason"] == "OOMKilled", json.dumps(status["failure"])


def until_reason(kubectl: Kubectl, namespace: str, run: str, reason: str) -> None:
    said = f"--for=jsonpath={{.status.conditions[?(@.type=='Reconciling')].reason}}={reason}"
    kubectl.patiently("-n", namespace, "wait", said, f"rlrun/{run}")


def status_of(kubectl: Kubectl, namespace: str, run: str) -> dict[str, Any]:
    status: dict[str, Any] = kubectl.json("-n", namespace, "get", "rlrun", run)["status"]
    return status
