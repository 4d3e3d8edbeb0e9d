"""ttlSecondsAfterFinished on a real API server: finished runs are deleted when their time has passed, and only then."""

from typing import Any

from tests.integration.cluster.control_plane import Call
from tests.integration.cluster.kubelet import End, result
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace

SUCCEEDED = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS)
SHORT, LONG = 2, 3600


def end(runs: RunsNamespace) -> None:
    """The run's pod ends with a success."""
    pod = runs.until_pod()
    runs.kubelet.start(pod)
    runs.kubelet.end(pod, "Succeeded", trainer=End(0, SUCCEEDED))


def until_gone(runs: RunsNamespace) -> None:
    wait_for("the run is gone", lambda: runs.find() is None)


def test_a_finished_run_is_deleted_with_everything_it_owns(runs: RunsNamespace) -> None:
    runs.apply(ttlSecondsAfterFinished=SHORT)
    end(runs)
    runs.until_phase("Succeeded")
    runs.until_released(runs.status()["podName"])
    until_gone(runs)
    assert [w.code for w in runs.writes() if (w.verb, w.resource) == ("delete", "rltrainingruns")] == [200]
    runs.kubelet.collect_garbage()
    wait_for("nothing is left", runs.empty)
    wait_for("it is told", lambda: "Expired" in {event["reason"] for event in told(runs)})


def status_writes(runs: RunsNamespace) -> list[Call]:
    """The operator's writes of the run itself."""
    return [write for write in runs.writes() if write.resource.startswith("rltrainingruns")]


def told(runs: RunsNamespace) -> list[dict[str, Any]]:
    return runs.admin.items(f"/apis/events.k8s.io/v1/namespaces/{runs.namespace}/events")


def test_the_time_may_be_set_after_the_end(runs: RunsNamespace) -> None:
    runs.apply()
    runs.succeed(runs.until_pod())
    before = len(status_writes(runs))
    runs.edit(ttlSecondsAfterFinished=LONG)
    wait_for("the edit is seen", lambda: runs.status()["observedGeneration"] == 2)
    wait_for("that is logged", lambda: len(status_writes(runs)) > before)
    seen = status_writes(runs)
    stays("finished runs are left alone", lambda: runs.find() and status_writes(runs) == seen, seconds=1.5)
    runs.edit(ttlSecondsAfterFinished=0)
    until_gone(runs)


def test_its_time_passed_while_the_operator_was_down(runs: RunsNamespace, operator: OperatorProcess) -> None:
    runs.apply(ttlSecondsAfterFinished=SHORT)
    end(runs)
    runs.until_phase("Succeeded")
    operator.kill()
    stays("nobody deletes it", lambda: runs.find() is not None, seconds=SHORT + 0.5)
    operator.start()
    until_gone(runs)


def test_a_recreated_run_stays(runs: RunsNamespace, operator: OperatorProcess) -> None:
    runs.apply(ttlSecondsAfterFinished=SHORT)
    end(runs)
    runs.until_phase("Succeeded")
    operator.kill()
    runs.delete()
    again = runs.apply(ttlSecondsAfterFinished=SHORT)
    operator.start()
    runs.until_pod()
    stays("it stays", lambda: (runs.find() or again)["metadata"]["uid"] == again["metadata"]["uid"] and runs.find())
