"""Kueue's interface on a real API server. A policy gates pods like Kueue's webhook; the test plays the rest of it."""

from typing import Any

import pytest
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace, install_runtime

from rl_operator.api.names import SLOT_GATE

QUEUE, GATE = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/admission"
SUCCEEDED = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS)
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
NAME = "like-kueue"
GATED = f'Object{{spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: "{GATE}"}}]}}}}'

POLICY: dict[str, Any] = {
    "metadata": {"name": NAME},
    "spec": {
        "reinvocationPolicy": "Never",
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ],
            "objectSelector": {"matchExpressions": [{"key": QUEUE, "operator": "Exists"}]},
        },
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": GATED},
            }
        ],
    },
}


@pytest.fixture(scope="module", autouse=True)
def gating(control_plane: ControlPlane) -> None:
    """Pods with Kueue's label are gated from now on; it takes the API server a moment."""
    admin = control_plane.admin
    admin.post(f"{ADMISSION}/mutatingadmissionpolicies", POLICY)
    binding = {"metadata": {"name": NAME}, "spec": {"policyName": NAME}}
    admin.post(f"{ADMISSION}/mutatingadmissionpolicybindings", binding)
    pod = {
        "metadata": {"generateName": "probe-", "labels": {QUEUE: "probe"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }

    def gated() -> bool:
        made = admin.post("/api/v1/namespaces/default/pods", pod)
        admin.delete(f"/api/v1/namespaces/default/pods/{made['metadata']['name']}", {"gracePeriodSeconds": 0})
        return bool(made["spec"].get("schedulingGates"))

    wait_for("pods with Kueue's label are gated", gated)


def apply(runs: RunsNamespace, **spec: Any) -> str:
    """The name of the first attempt's pod, which is gated."""
    runs.create(
        {
            "apiVersion": "rl-operator.dev/v1alpha1",
            "kind": "RLTrainingRun",
            "metadata": {"name": "sorting", "labels": {QUEUE: "team"}},
            "spec": {
                "environment": "sort_digits",
                "runtime": "tiny",
                "config": {"total_steps": TOTAL_STEPS},
                **spec,
            },
        }
    )
    pod = runs.until_pod()
    found = runs.kubelet.pod(pod)
    assert found["metadata"]["labels"][QUEUE] == "team"
    assert GATE in gates_of(runs, pod)
    return pod


def gates_of(runs: RunsNamespace, pod: str) -> set[str]:
    return {gate["name"] for gate in runs.kubelet.pod(pod)["spec"].get("schedulingGates", ())}


def path_of(runs: RunsNamespace, pod: str) -> str:
    return f"/api/v1/namespaces/{runs.namespace}/pods/{pod}"


def admit(runs: RunsNamespace, pod: str) -> None:
    runs.admin.patch(path_of(runs, pod), {"spec": {"schedulingGates": None}})


def test_a_gated_run_waits_is_admitted_and_trains(runs: RunsNamespace) -> None:
    pod = apply(runs)
    assert "queue 'team'" in runs.until_reason("Reconciling", "Gated")["message"]
    status = runs.status()
    assert (status["phase"], status.get("admittedTime")) == ("Starting", None)
    admit(runs, pod)
    runs.succeed(pod)
    status = runs.status()
    assert status["attempts"][0]["started"] <= status["admittedTime"] <= status["completionTime"]


def test_at_a_runtime_with_slots_it_starts_when_it_is_admitted_and_holds_one(runs: RunsNamespace) -> None:
    install_runtime(runs.admin, "tiny", "limited-by-both", limits={"maxActiveRuns": 1})
    pod = apply(runs, runtime="limited-by-both")
    assert gates_of(runs, pod) == {GATE, SLOT_GATE}
    runs.until_reason("Reconciling", "Gated")
    runs.admin.patch(path_of(runs, pod), {"spec": {"schedulingGates": [{"name": SLOT_GATE}]}})
    wait_for("the operator lifts its own gate", lambda: not gates_of(runs, pod))
    runs.succeed(pod)


def test_no_start_deadline_runs_while_it_is_gated(runs: RunsNamespace) -> None:
    pod = apply(runs, startDeadlineSeconds=2)
    runs.until_reason("Reconciling", "Gated")
    stays("it waits", lambda: runs.status()["phase"] == "Starting" and runs.kubelet.pod(pod), seconds=3.5)
    admit(runs, pod)
    runs.kubelet.bind(pod)
    wait_for("it was admitted", lambda: runs.status().get("admittedTime"))
    runs.until_reason("Reconciling", "StartDeadlineExceeded")


def test_a_deleted_gated_pod_is_recreated_for_the_same_attempt(runs: RunsNamespace) -> None:
    pod = apply(runs)
    runs.until_reason("Reconciling", "Gated")
    for _ in range(3):
        found = runs.kubelet.pod(pod)
        before = found["metadata"]["uid"]
        runs.admin.delete(path_of(runs, pod))
        wait_for(
            "the pod is there again",
            lambda before=before: (runs.kubelet.pod(pod) or {"metadata": {"uid": before}})["metadata"]["uid"] != before,
        )
    status = runs.status()
    assert (status["attempt"], status.get("attempts", [])) == (1, [])
    admit(runs, pod)
    runs.succeed(pod)
    assert [attempt["attempt"] for attempt in runs.status()["attempts"]] == [1]


def test_a_stopped_gated_run_creates_no_further_pod(runs: RunsNamespace) -> None:
    pod = apply(runs)
    runs.until_reason("Reconciling", "Gated")
    runs.edit(suspend=True)
    runs.until_phase("Stopped")
    wait_for("the pod is gone", lambda: runs.kubelet.pod(pod) is None)
    stays("none comes", lambda: not runs.kubelet.pods())
    runs.edit(suspend=False)
    assert runs.until_pod(2).endswith("-2")


def test_an_admitted_pod_preempted_by_kueue_is_a_lost_attempt_that_is_not_counted(runs: RunsNamespace) -> None:
    pod = apply(runs, backoffLimit=0)
    runs.until_reason("Reconciling", "Gated")
    admit(runs, pod)
    runs.kubelet.start(pod)
    runs.kubelet.work(pod)
    runs.until_phase("Running")
    runs.admin.delete(path_of(runs, pod))
    runs.kubelet.end(pod, "Failed", trainer=End(0, result("stopped", steps=2, total=TOTAL_STEPS)))
    again = runs.until_pod(2)
    status = runs.status()
    assert ([a["attempt"] for a in status["attempts"]], status.get("failedAttempts")) == ([1], None)
    runs.until_reason("Reconciling", "Gated")
    assert "admittedTime" not in runs.status()
    admit(runs, again)
    runs.kubelet.start(again)
