"""What follows from the end of a pod; the unit tests of status/attempt/attempt_fate.py have every way to end."""

from typing import Any

import pytest
from tests.integration.cluster.kubelet import ENVIRONMENT, NOW, TRAINER, End, result, waiting
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace


def failed(error_class: str, message: str, steps: int = 0) -> str:
    return result("failed", steps=steps, total=TOTAL_STEPS, error={"class": error_class, "message": message})


def test_a_permanent_failure_is_not_retried(runs: RunsNamespace) -> None:
    pod = runs.train(backoffLimit=3)
    runs.kubelet.end(pod, "Failed", trainer=End(3, failed("credentials", "TINKER_API_KEY is refused")))
    status = runs.until_phase("Failed")
    runs.until_released(pod)
    message = "TINKER_API_KEY is refused"
    assert status["failure"] == {
        "reason": "CredentialsRefused", "container": "trainer", "message": message, "exitCode": 3
    }  # fmt: skip
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    assert conditions == {"Accepted": "True", "Failed": "True", "Finished": "True", "Stalled": "True"}
    assert status["attempt"] == 1


def test_an_application_failure_is_retried_from_the_checkpoint(runs: RunsNamespace) -> None:
    runs.apply(backoffLimit=1)
    first = runs.until_pod()
    runs.kubelet.start(first)
    runs.kubelet.end(first, "Failed", trainer=End(1, failed("internal", "loss is nan", steps=2)))
    second = runs.until_pod(attempt=2)
    status = runs.status()
    assert status["checkpoint"] == {"step": 2, "statePath": "tinker://m/weights/000002"}
    assert status["failedAttempts"] == 1
    env_vars = {e["name"]: e.get("value") for e in runs.kubelet.pod(second)["spec"]["containers"][0]["env"]}
    assert env_vars["RL_ATTEMPT"] == "2"
    runs.succeed(second, attempt=2)
    assert [a["reason"] for a in runs.status()["attempts"]] == ["TrainerFailed", "Succeeded"]


DRAINED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "drained"}
STOPPED = result("stopped", steps=2, total=TOTAL_STEPS)


@pytest.mark.parametrize("conditions", [[], [DRAINED]], ids=["of itself", "evicted"])
def test_an_infrastructure_failure_is_not_counted(runs: RunsNamespace, conditions: list[dict[str, Any]]) -> None:
    """Though the pod's phase says Succeeded."""
    runs.apply(backoffLimit=0)
    first = runs.until_pod()
    runs.kubelet.start(first)
    runs.kubelet.end(first, "Succeeded", more={"conditions": conditions}, trainer=End(0, STOPPED))
    runs.succeed(runs.until_pod(attempt=2), attempt=2)
    status = runs.status()
    reason = "EvictionByEvictionAPI" if conditions else "UnexpectedExit"
    assert [attempt["reason"] for attempt in status["attempts"]] == [reason, "Succeeded"]
    assert "failedAttempts" not in status


def test_unmounted_volumes_are_named(runs: RunsNamespace) -> None:
    runs.apply()
    pod = runs.until_pod()
    runs.kubelet.bind(pod)
    late = {"type": "PodReadyToStartContainers", "status": "False", "lastTransitionTime": NOW}
    states = {name: waiting("PodInitializing") for name in ("api", TRAINER, ENVIRONMENT)}
    runs.kubelet.write(pod, "Pending", states, conditions=[late])
    config_map = runs.status()["configMapName"]
    condition = runs.until_reason("Reconciling", "PodNotPrepared", f"(ConfigMap {config_map})")
    assert f"kubectl -n {runs.namespace} describe pod {pod}" in condition["message"]
