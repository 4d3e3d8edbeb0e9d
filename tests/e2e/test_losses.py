"""What a cluster does to runs, done by the cluster: real evictions, a real leader that dies."""

import json
from functools import partial
from typing import Any

import pytest
from tests.e2e.conftest import EVERY_GROUP, PATIENCE_SECONDS, Kubectl
from tests.e2e.test_sorting import finish
from tests.integration.cluster.polling import wait_for

pytestmark = pytest.mark.timeout(2400)

STEPS = 50

until = partial(wait_for, seconds=PATIENCE_SECONDS)


def a_run(name: str, **spec: Any) -> str:
    head = {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLTrainingRun", "metadata": {"name": name}}
    return json.dumps({**head, "spec": {"environment": "sort_digits", "runtime": "tiny", **spec}})


def leader(kubectl: Kubectl) -> str:
    lease = kubectl.json("-n", "rl-operator", "get", "lease", "rl-operator")
    holder: str = lease["spec"]["holderIdentity"]
    return holder


def evict(kubectl: Kubectl, namespace: str, pod: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    kubectl("create", "--raw", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", "-f", "-", stdin=json.dumps(body))


def test_an_evicted_run_continues_while_the_leader_dies(installed: Kubectl, namespace: str) -> None:
    """The pod is evicted and the operator that leads is killed in the same moment; then the finished run expires."""
    kubectl = installed
    kubectl("-n", namespace, "apply", "-f", "-", stdin=a_run("evicted", config={"total_steps": STEPS, **EVERY_GROUP}))
    kubectl.patiently("-n", namespace, "wait", "--for=condition=Ready", "rlrun/evicted")
    pod = kubectl.json("-n", namespace, "get", "rlrun", "evicted")["status"]["podName"]
    before = leader(kubectl)
    evict(kubectl, namespace, pod)
    kubectl("-n", "rl-operator", "delete", "pod", before, "--grace-period=0", "--force")

    status = finish(kubectl, namespace, "evicted")["status"]
    assert status["phase"] == "Succeeded", json.dumps(status, indent=2)
    assert leader(kubectl) != before
    assert [(a["attempt"], a["reason"]) for a in status["attempts"]] == [(1, "EvictionByEvictionAPI"), (2, "Succeeded")]
    assert 0 < status["attempts"][0]["steps"] < STEPS
    series = kubectl.json("-n", namespace, "get", "configmap", status["historyName"])
    steps = [point["step"] for point in json.loads(series["data"]["history.json"])["points"]]
    assert steps == sorted(set(steps))
    assert 0 < steps[-1] <= STEPS  # what the trainer reported while an operator led: a short attempt may end in between

    kubectl(
        "-n", namespace, "patch", "rlrun", "evicted", "--type=merge", "-p", '{"spec":{"ttlSecondsAfterFinished":1}}'
    )
    kubectl.patiently("-n", namespace, "wait", "--for=delete", "rlrun/evicted")


EMPTY_DATA = "for _ in 1 2 3 4 5 6 7 8 9; do find /data -mindepth 1 -delete && exit; done; exit 1"
"""The service goes on writing meanwhile: a folder may have become full again before it is deleted."""


@pytest.mark.nightly("operator/src/rl_operator/reconcile", "tinker-atropos/tinker-service/src/tinker_service")
def test_a_drained_node_costs_steps_but_a_wiped_service_never_starts_over(
    installed: Kubectl, namespace_with_service: str
) -> None:
    """The node that holds run and Tinker service is drained: both come back, and the run continues from its checkpoint.
    Then the service loses its volume's contents, too: the run ends, with what was lost and what to do.
    """
    kubectl, namespace = installed, namespace_with_service
    kubectl("-n", namespace, "apply", "-f", "-", stdin=a_run("drained", config={"total_steps": 100_000, **EVERY_GROUP}))
    until("a checkpoint is recorded", lambda: status_of(kubectl, namespace).get("checkpoint"))
    [node] = nodes_of(kubectl, namespace)
    kubectl("cordon", node)
    try:
        drain(kubectl, namespace)
    finally:
        kubectl("uncordon", node)
    until("a second attempt trains on", lambda: trains_on(status_of(kubectl, namespace)))

    kubectl("-n", namespace, "exec", "deployment/tinker-service", "--", "sh", "-c", EMPTY_DATA)
    drain(kubectl, namespace)
    status = finish(kubectl, namespace, "drained")["status"]
    assert (status["phase"], status["failure"]["reason"]) == ("Failed", "CheckpointLost"), json.dumps(status, indent=2)
    first, second, *_ = status["attempts"]
    assert (first["fromStep"], second["fromStep"] >= 10) == (0, True)
    assert "onLostCheckpoint" in status["message"]
    assert status["checkpoint"]["step"] >= 10


def status_of(kubectl: Kubectl, namespace: str) -> dict[str, Any]:
    status: dict[str, Any] = kubectl.json("-n", namespace, "get", "rlrun", "drained").get("status", {})
    return status


def trains_on(status: dict[str, Any]) -> bool:
    """Whether a second attempt has got beyond the step that it began with, which is not the first."""
    progress = status.get("progress", {})
    return status["attempt"] == 2 and 0 < progress.get("fromStep", 0) < progress.get("step", 0)


def nodes_of(kubectl: Kubectl, namespace: str) -> set[str]:
    pods = kubectl.json("-n", namespace, "get", "pods")["items"]
    return {pod["spec"]["nodeName"] for pod in pods}


def drain(kubectl: Kubectl, namespace: str) -> None:
    """What `kubectl drain` does to the pods of one namespace: other tests' stay."""
    for pod in kubectl.json("-n", namespace, "get", "pods")["items"]:
        evict(kubectl, namespace, pod["metadata"]["name"])
