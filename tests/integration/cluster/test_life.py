"""A run's life on a real API server, with the operator as a real process and the test as its kubelet."""

from collections.abc import Iterator

import pytest
from tests.integration.cluster.control_plane import Call, ControlPlane
from tests.integration.cluster.kubelet import NOW, End, result
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.polling import stays, wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace
from tests.integration.cluster.trainer import trainer_status

SUCCEEDED = result("succeeded", steps=TOTAL_STEPS, total=TOTAL_STEPS, metrics={"heldOut": {"value": 0.91234}})


@pytest.mark.smoke
def test_success_from_apply_to_weights(runs: RunsNamespace) -> None:
    run = runs.apply()
    pod = runs.until_pod()
    assert pod == f"sorting-{run['metadata']['uid'][:5]}-1"
    assert runs.until_phase("Starting")["podName"] == pod

    runs.kubelet.start(pod)
    runs.kubelet.work(pod)
    running = runs.until_phase("Running")
    assert {c["type"]: c["status"] for c in running["conditions"]} == {"Accepted": "True", "Ready": "True"}

    runs.kubelet.end(pod, "Succeeded", trainer=End(0, SUCCEEDED))
    status = runs.until_phase("Succeeded")
    runs.until_released(pod)
    conditions = {c["type"]: (c["status"], c["reason"]) for c in status.pop("conditions")}
    assert conditions == {
        "Accepted": ("True", "Accepted"),
        "Ready": ("True", "Succeeded"),
        "Complete": ("True", "Succeeded"),
        "Finished": ("True", "Succeeded"),
    }
    created = runs.kubelet.pod(pod)["metadata"]["creationTimestamp"]
    times = {name: status.pop(name) for name in ("startTime", "completionTime")}
    assert run["metadata"]["creationTimestamp"] <= times["startTime"] <= created <= times["completionTime"]
    config_hash, observed_at = status["configHash"], status["metrics"].pop("observedAt")
    assert observed_at >= created
    assert status.pop("frozen").keys() == {"config", "trainer"}
    assert status == {
        "phase": "Succeeded",
        "message": f"All {TOTAL_STEPS} steps are trained and the weights are saved.",
        "observedGeneration": 1,
        "attempt": 1,
        "attempts": [
            {
                "attempt": 1,
                "pod": pod,
                "started": created,
                "ended": NOW,
                "reason": "Succeeded",
                "fromStep": 0,
                "steps": TOTAL_STEPS,
            }
        ],
        "attemptStartTime": created,
        "podName": pod,
        "configMapName": f"sorting-{config_hash[:8]}",
        "configHash": config_hash,
        "progress": {"step": TOTAL_STEPS, "totalSteps": TOTAL_STEPS, "percent": 100, "fromStep": 0},
        "metrics": {"heldOut": {"metric": "eval/percent_correct", "value": 0.9123}, "source": "result"},
        "containers": [
            {"name": name, "state": "Terminated", "exitCode": 0, "reason": "Completed", "restarts": 0}
            for name in ("api", "trainer", "environment")
        ],
        "checkpoint": {"step": TOTAL_STEPS, "statePath": "tinker://m/weights/000004"},
        "weights": {"samplerPath": "tinker://m/sampler_weights/000004", "statePath": "tinker://m/weights/000004"},
    }


@pytest.fixture
def patient(control_plane: ControlPlane, operator_process: OperatorProcess) -> Iterator[None]:
    """An operator that writes mere progress as seldom as it does in a cluster."""
    operator_process.kill()
    patient = OperatorProcess(control_plane.kubeconfig(), *FAST, "--progress-seconds", "60")
    try:
        patient.start()
        yield
    finally:
        patient.close()
        operator_process.start()


@pytest.mark.usefixtures("patient")
def test_a_run_takes_at_most_nine_writes(runs: RunsNamespace) -> None:
    runs.apply()
    runs.succeed(runs.until_pod())
    writes = runs.writes()
    # A lost race is written again: only what the API server took counts, and there must be no lost races either.
    assert [write.code // 100 for write in writes] == [2] * len(writes), writes
    assert len(writes) <= 9, writes
    others = (write for write in writes if write.resource != "rltrainingruns/status")
    assert sorted(others, key=lambda write: (write.verb, write.resource)) == [
        Call("create", "configmaps", runs.namespace, runs.status()["configMapName"], 201),
        Call("create", "networkpolicies", runs.namespace, f"{runs.status()['podName'].removesuffix('-1')}-ops", 201),
        Call("create", "pods", runs.namespace, runs.status()["podName"], 201),
        Call("patch", "pods", runs.namespace, runs.status()["podName"], 200),
        Call("patch", "rltrainingruns", runs.namespace, "sorting", 200),
    ]


def test_a_finished_run_is_left_alone(runs: RunsNamespace) -> None:
    runs.apply()
    pod = runs.until_pod()
    runs.succeed(pod)
    before, status = len(runs.writes()), runs.status()
    runs.kubelet.end(pod, "Failed", trainer=End(1, "nobody listens any more"))
    stays("nothing is written", lambda: len(runs.writes()) == before)
    runs.edit(ttlSecondsAfterFinished=3600)
    wait_for("the edit is seen: who waits for it would wait forever", lambda: runs.status()["observedGeneration"] == 2)
    assert runs.status() == {**status, "observedGeneration": 2}
    assert len(runs.writes()) == before + 1


def test_progress_comes_from_the_trainer(runs: RunsNamespace) -> None:
    runs.apply()
    pod = runs.until_pod()
    figures = {"step": 2, "totalSteps": TOTAL_STEPS, "secondsPerStep": 0.5, "metrics": {"rolloutReward": 0.6}}
    with trainer_status(runs, "127.255.0.2", {"phase": "training", **figures}):
        runs.kubelet.start(pod, "127.255.0.2")
        runs.kubelet.work(pod)
        wait_for("step 2 is in status", lambda: (runs.status().get("progress") or {}).get("step") == 2)
    status = runs.status()
    assert status["progress"] == {
        "fromStep": 0, "step": 2, "totalSteps": TOTAL_STEPS, "percent": 50, "secondsPerStep": 0.5, "etaSeconds": 1,
    }  # fmt: skip
    assert (status["metrics"]["rolloutReward"], status["metrics"]["source"]) == (0.6, "trainer")


def test_a_silent_backend_is_in_the_message_until_it_answers(runs: RunsNamespace) -> None:
    runs.apply()
    pod = runs.until_pod()
    why = "The backend at http://tinker-service:8005 does not answer for more than 10 s: DNS knows no tinker-service."
    trainer = {"phase": "starting", "waiting": why, "backendSilent": True}
    with trainer_status(runs, "127.255.0.29", trainer):
        runs.kubelet.start(pod, "127.255.0.29")
        found = runs.until_reason("Reconciling", "BackendSilent", "DNS knows no tinker-service")
        assert runs.status()["message"] == found["message"]
        trainer |= {"waiting": None, "backendSilent": False}
        runs.until_reason("Reconciling", "PodStarting")


def test_users_are_informed_by_events(runs: RunsNamespace) -> None:
    run = runs.apply()
    runs.succeed(runs.until_pod())

    def told() -> list[str]:
        events = runs.admin.items(f"/apis/events.k8s.io/v1/namespaces/{runs.namespace}/events")
        assert {event["regarding"]["uid"] for event in events} <= {run["metadata"]["uid"]}
        return [event["reason"] for event in sorted(events, key=lambda event: event["eventTime"])]

    wait_for("the end is told", lambda: "Succeeded" in told())
    assert told()[0] == "Starting"


def test_suspend_and_resume_make_a_second_attempt(runs: RunsNamespace) -> None:
    first = runs.train()

    runs.edit(suspend=True)
    assert runs.until_phase("Stopping")["podName"] == first
    wait_for("the pod is asked to end", lambda: "deletionTimestamp" in runs.kubelet.pod(first)["metadata"])
    stopped_at = result("stopped", steps=2, total=TOTAL_STEPS)
    runs.kubelet.end(first, "Succeeded", trainer=End(0, stopped_at))
    stopped = runs.until_phase("Stopped")
    assert (stopped["checkpoint"]["step"], stopped["attempts"][-1]["reason"]) == (2, "Stopped")
    runs.until_released(first)
    runs.kubelet.remove(first)
    stays("nothing starts", lambda: runs.status()["phase"] == "Stopped" and not runs.kubelet.pods())

    runs.edit(suspend=False)
    second = runs.until_pod(attempt=2)
    runs.succeed(second, attempt=2)
    status = runs.status()
    assert [(a["attempt"], a["reason"]) for a in status["attempts"]] == [(1, "Stopped"), (2, "Succeeded")]
    assert status["startTime"] == stopped["startTime"]


def test_deletion_leaves_no_finalizers(runs: RunsNamespace) -> None:
    runs.apply()
    pod = runs.until_pod()
    runs.kubelet.start(pod)
    runs.until_phase("Starting")
    runs.delete()
    runs.kubelet.collect_garbage()
    wait_for("all children are gone", runs.empty)


def test_deleted_and_applied_again_at_once(runs: RunsNamespace) -> None:
    """The old pod is still terminating while the new run starts: neither blocks the other."""
    old = runs.train()

    runs.delete()
    again = runs.apply()
    new = runs.until_pod()
    assert new == f"sorting-{again['metadata']['uid'][:5]}-1" != old
    runs.kubelet.collect_garbage()
    runs.until_released(old)
    runs.succeed(new)
    assert [a["pod"] for a in runs.status()["attempts"]] == [new]
