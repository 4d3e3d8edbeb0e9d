"""A Job's pod, from what the API server holds."""

from typing import Any

import pytest

from rl_operator.targets.target import JobContainer, job_pod

JOB: dict[str, Any] = {"spec": {"template": {"spec": {"containers": [{"name": "model-0"}]}}}}


def pod(created: str = "2026-05-01T12:00:00Z", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": f"p-{created}", "creationTimestamp": created}, "status": status}


def state(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "model-0", "state": state}]}


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
NO_SECRET = {"reason": "CreateContainerConfigError", "message": 'secret "provider" not found'}

PODS = {
    "new": (pod(), JobContainer("waiting")),
    "unscheduled": (pod(conditions=[UNSCHEDULABLE]), JobContainer("waiting", "Unschedulable: no room")),
    "without its key": (
        pod(**state(waiting=NO_SECRET)),
        JobContainer("waiting", 'CreateContainerConfigError: secret "provider" not found'),
    ),
    "running": (pod(**state(running={})), JobContainer("running")),
    "done": (pod(**state(terminated={"exitCode": 0, "reason": "Completed"})), JobContainer("ended")),
    "killed": (
        pod(**state(terminated={"exitCode": 137, "reason": "OOMKilled"})),
        JobContainer("ended", "exited (137) OOMKilled"),
    ),
    "evicted": (
        pod(phase="Failed", reason="Evicted", message="low on memory"),
        JobContainer("ended", "Evicted: low on memory"),
    ),
}


@pytest.mark.parametrize(("found", "expected"), PODS.values(), ids=PODS)
def test_states(found: dict[str, Any], expected: JobContainer) -> None:
    assert job_pod(JOB, [found]).containers == {"model-0": expected}


def test_the_newest_pod_counts() -> None:
    assert job_pod(JOB, [pod("2026-05-02T12:00:00Z"), pod("2026-05-01T12:00:00Z")]).name == "p-2026-05-02T12:00:00Z"


def test_a_job_without_a_pod_waits_until_it_has_failed() -> None:
    waiting = job_pod(JOB, [])
    assert (waiting.name, waiting.containers["model-0"].state) == (None, "waiting")
    late = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
    over = job_pod(JOB | {"status": {"conditions": [late]}}, [])
    assert over.containers["model-0"] == JobContainer("ended", "DeadlineExceeded")
