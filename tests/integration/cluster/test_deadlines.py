"""The deadlines against a real API server: each ends the run with its own reason, and names what was observed."""

from datetime import UTC, datetime
from typing import Any

from tests.integration.cluster.kubelet import ENVIRONMENT, TRAINER, End, result, running, waiting
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace

STOPPED = End(0, result("stopped", steps=2, total=TOTAL_STEPS))


def end_when_asked(runs: RunsNamespace, pod: str, trainer: End = STOPPED) -> dict[str, Any]:
    """Wait for the operator to delete the pod, play its end, and give the run's last status."""
    wait_for(
        "the pod is asked to end",
        lambda: "deletionTimestamp" in (runs.kubelet.pod(pod) or {"metadata": {}})["metadata"],
    )
    assert runs.status()["phase"] == "Stopping", "why is written before the pod is deleted"
    runs.kubelet.end(pod, "Failed", trainer=trainer)
    status = runs.until_phase("Failed")
    runs.until_released(pod)
    return status


def test_a_start_that_takes_too_long_names_the_image(runs: RunsNamespace) -> None:
    runs.apply(startDeadlineSeconds=3)
    pod = runs.until_pod()
    runs.kubelet.bind(pod)
    states = {
        "api": running(ready=True),
        TRAINER: waiting("ImagePullBackOff", "no such image"),
        ENVIRONMENT: waiting("x"),
    }
    runs.kubelet.write(pod, "Pending", states)
    status = end_when_asked(runs, pod, End(0))
    assert status["failure"]["reason"] == "StartDeadlineExceeded"
    assert "no such image" in status["failure"]["message"]
    assert [attempt["reason"] for attempt in status["attempts"]] == ["StartDeadlineExceeded"]


def test_an_unschedulable_pod_is_deleted_at_once(runs: RunsNamespace) -> None:
    """Nothing has to end it: no kubelet has it."""
    runs.apply(startDeadlineSeconds=3)
    pod = runs.until_pod()
    words = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    runs.kubelet.write(pod, "Pending", {}, conditions=[words])
    status = runs.until_phase("Failed")
    assert status["failure"]["reason"] == "StartDeadlineExceeded"
    assert "0/3 nodes are available" in status["failure"]["message"]
    wait_for("the pod is gone", lambda: runs.kubelet.pod(pod) is None)


def test_one_that_passes_while_the_operator_is_down_is_noticed_on_its_return(
    runs: RunsNamespace, operator: OperatorProcess
) -> None:
    pod = runs.train(activeDeadlineSeconds=4)
    started = runs.status()["startTime"]
    operator.kill()
    wait_for("the deadline has passed", lambda: seconds_since(started) > 4)
    operator.start()
    assert end_when_asked(runs, pod)["failure"]["reason"] == "ActiveDeadlineExceeded"


def test_a_success_while_the_operator_was_down_is_a_success(runs: RunsNamespace, operator: OperatorProcess) -> None:
    """Any deadline that has passed by the time of the next reconcile."""
    pod = runs.train(activeDeadlineSeconds=4)
    started = runs.status()["startTime"]
    operator.kill()
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS)))
    wait_for("the deadline has passed", lambda: seconds_since(started) > 4)
    operator.start()
    runs.until_phase("Succeeded")


def seconds_since(moment: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
