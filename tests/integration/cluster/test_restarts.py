"""The operator keeps no state of its own: killed in any phase and restarted, the end is the same."""

import time

import pytest
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace

SUCCEEDED = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS)


def test_applied_while_the_operator_was_down(runs: RunsNamespace, operator: OperatorProcess) -> None:
    operator.kill()
    runs.apply()
    operator.start()
    runs.succeed(runs.until_pod())
    runs.one_pod_per_attempt()


@pytest.mark.parametrize("milliseconds", [0, 15, 40])
def test_killed_while_it_creates_a_pod(runs: RunsNamespace, operator: OperatorProcess, milliseconds: int) -> None:
    """Wherever it dies between the writes of a start, one pod results."""
    runs.apply()
    time.sleep(milliseconds / 1000)
    operator.kill()
    operator.start()
    runs.succeed(runs.until_pod())
    runs.one_pod_per_attempt()


def test_killed_while_starting(runs: RunsNamespace, operator: OperatorProcess) -> None:
    runs.apply()
    pod = runs.until_pod()
    runs.kubelet.start(pod)
    runs.until_phase("Starting")
    operator.kill()
    runs.kubelet.work(pod)
    operator.start()
    runs.until_phase("Running")
    runs.finish(pod)
    runs.one_pod_per_attempt()


def test_the_end_came_while_the_operator_was_down(runs: RunsNamespace, operator: OperatorProcess) -> None:
    """The pod ended and was deleted meanwhile: our finalizer kept its result."""
    pod = runs.train()
    operator.kill()
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, SUCCEEDED))
    runs.admin.delete(f"/api/v1/namespaces/{runs.namespace}/pods/{pod}", {"gracePeriodSeconds": 0})
    operator.start()
    status = runs.until_phase("Succeeded")
    assert status["weights"]["samplerPath"] == "tinker://m/sampler_weights/000004"
    wait_for("the pod is gone", lambda: runs.kubelet.pod(pod) is None)
    runs.one_pod_per_attempt()


def test_killed_while_stopping(runs: RunsNamespace, operator: OperatorProcess) -> None:
    pod = runs.train()
    runs.edit(suspend=True)
    runs.until_phase("Stopping")
    operator.kill()
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, result("stopped", steps=3, total=TOTAL_STEPS)))
    operator.start()
    assert runs.until_phase("Stopped")["checkpoint"]["step"] == 3
    runs.until_released(pod)
    runs.one_pod_per_attempt()


def test_killed_between_two_attempts(runs: RunsNamespace, operator: OperatorProcess) -> None:
    runs.apply()
    first = runs.until_pod()
    runs.kubelet.start(first)
    operator.kill()
    runs.kubelet.end(first, "Failed", trainer=End(1, result("running", steps=1, total=TOTAL_STEPS)))
    operator.start()
    runs.succeed(runs.until_pod(attempt=2), attempt=2)
    runs.one_pod_per_attempt(attempts=2)


def test_a_finished_run_does_not_change(runs: RunsNamespace, operator: OperatorProcess) -> None:
    runs.apply()
    runs.succeed(runs.until_pod())
    before, writes = runs.find(), len(runs.writes())
    operator.kill()
    operator.start()
    stays("nothing is written", lambda: len(runs.writes()) == writes)
    assert runs.find() == before


@pytest.mark.nightly("operator/src/rl_operator/process")
def test_the_api_server_was_unreachable(
    runs: RunsNamespace, operator: OperatorProcess, control_plane: ControlPlane
) -> None:
    """Running continues, nothing is started twice, and the operator is the same process as before."""
    pod = runs.train()
    process = operator.pid
    control_plane.restart_api_server()
    runs.finish(pod)
    assert operator.pid == process
    runs.one_pod_per_attempt()


def test_two_operators_at_once_are_harmless(
    runs: RunsNamespace, operator: OperatorProcess, control_plane: ControlPlane
) -> None:
    """There is no fencing token in Kubernetes: versions, uids and deterministic names must do."""
    second = OperatorProcess(control_plane.kubeconfig(), *FAST)
    try:
        second.start()
        names = [f"run-{number}" for number in range(5)]
        for name in names:
            runs.apply(name)
        pods = [runs.until_pod(name=name) for name in names]
        for pod in pods:
            runs.kubelet.end(pod, "Succeeded", trainer=End(0, SUCCEEDED))
        for name in names:
            assert len(runs.until_phase("Succeeded", name)["attempts"]) == 1
    finally:
        second.close()
    runs.one_pod_per_attempt(attempts=5)


def test_deleted_while_the_operator_was_down(runs: RunsNamespace, operator: OperatorProcess) -> None:
    runs.apply()
    pod = runs.until_pod()
    runs.kubelet.start(pod)
    operator.kill()
    runs.delete()
    runs.kubelet.collect_garbage()
    assert runs.kubelet.pod(pod), "held by our finalizer until the operator is back"
    operator.start()
    wait_for("all children are gone", runs.empty)
