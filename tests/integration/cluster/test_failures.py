"""Every way in which a container ends a run, and the resulting status."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.integration.cluster.kubelet import ENVIRONMENT, NOW, TRAINER, End, result, running, waiting
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import TOTAL_STEPS, RunsNamespace


def failed(error_class: str, message: str, steps: int = 0) -> str:
    return result("failed", steps=steps, total=TOTAL_STEPS, error={"class": error_class, "message": message})


@dataclass(frozen=True)
class Case:
    """How the containers end -> `status.failure` of a run without further attempts."""

    ends: dict[str, End]
    reason: str
    container: str | None
    message: str
    exit_code: int | None = field(default=None)


FINAL = {
    "bad configuration": Case(
        {"trainer": End(2, failed("config", "env.group_size is 3: it must divide 32")), "environment": End(0)},
        "ConfigInvalid", "trainer", "env.group_size is 3: it must divide 32", 2,
    ),
    "credentials": Case(
        {"trainer": End(3, failed("credentials", "TINKER_API_KEY is refused"))},
        "CredentialsRefused", "trainer", "TINKER_API_KEY is refused", 3,
    ),
    "billing": Case(
        {"trainer": End(3, failed("billing", "the account has no credit"))},
        "BillingRefused", "trainer", "the account has no credit", 3,
    ),
}  # fmt: skip

APPLICATION = {
    "trainer": Case(
        {"trainer": End(1, failed("internal", "loss is nan"))}, "TrainerFailed", "trainer", "loss is nan", 1
    ),
    "trainer out of memory": Case(
        {"trainer": End(137, result("running", steps=2, total=TOTAL_STEPS), reason="OOMKilled")},
        "OOMKilled", "trainer",
        "it needed more than its memory limit of 1Gi: raise spec.resources.trainer of the RLRuntime, or make smaller"
        " groups or shorter answers",
        137,
    ),
    "trainer without a word": Case(
        {"trainer": End(1, "Traceback (most recent call last):\nKeyError: 'x'")}, "TrainerFailed", "trainer",
        "KeyError: 'x'", 1,
    ),
    "environment": Case(
        {"trainer": End(1, failed("environment", "the environment is lost")),
         "environment": End(1, "error: ZeroDivisionError in score")},
        "EnvironmentFailed", "environment", "ZeroDivisionError in score", 1,
    ),
    "environment left early": Case(
        {"trainer": End(1, failed("environment", "the environment left after 1 group")), "environment": End(0)},
        "EnvironmentLeftEarly", "environment", "the environment left after 1 group", 0,
    ),
    "api": Case(
        {"api": End(1, "error: no space left on device: /var/lib/rl"), "trainer": End(0), "environment": End(0)},
        "ApiFailed", "api", "no space left on device: /var/lib/rl", 1,
    ),
}  # fmt: skip


def fail(runs: RunsNamespace, case: Case) -> dict[str, Any]:
    """Play the case on a run with a single attempt; returns its status."""
    pod = runs.train(backoffLimit=0)
    runs.kubelet.end(pod, "Failed", **case.ends)
    status = runs.until_phase("Failed")
    runs.until_released(pod)
    return status


@pytest.mark.parametrize("case", [*FINAL.values(), *APPLICATION.values()], ids=[*FINAL, *APPLICATION])
def test_failure_of_a_container_fails_the_run(runs: RunsNamespace, case: Case) -> None:
    status = fail(runs, case)
    failure = status["failure"]
    expected = (case.reason, case.container, case.message, case.exit_code)
    assert (
        failure["reason"],
        failure.get("container"),
        failure.get("message", ""),
        failure.get("exitCode"),
    ) == expected
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    assert conditions == {"Accepted": "True", "Failed": "True", "Finished": "True", "Stalled": "True"}
    assert case.reason in status["message"]


@pytest.mark.parametrize("case", FINAL.values(), ids=FINAL)
def test_a_permanent_failure_is_not_retried(runs: RunsNamespace, case: Case) -> None:
    runs.apply(backoffLimit=3)
    pod = runs.until_pod()
    runs.kubelet.start(pod)
    runs.kubelet.end(pod, "Failed", **case.ends)
    assert runs.until_phase("Failed")["attempt"] == 1


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


@dataclass(frozen=True)
class Loss:
    """How a pod ends through no fault of the run -> `attempts[].reason`."""

    reason: str
    phase: str = "Failed"
    ends: dict[str, End] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)


INFRASTRUCTURE = {
    "backend unreachable": Loss("BackendUnreachable", ends={"trainer": End(4, failed("backend", "no answer"))}),
    "evicted": Loss("Evicted", more={"reason": "Evicted", "message": "The node was low on resource: memory."}),
    "evicted, though the phase says Succeeded": Loss(
        "EvictionByEvictionAPI", "Succeeded", {"trainer": End(0, STOPPED)}, {"conditions": [DRAINED]}
    ),
    "preempted": Loss(
        "PreemptionByScheduler",
        ends={"trainer": End(137)},
        more={"conditions": [{**DRAINED, "reason": "PreemptionByScheduler"}]},
    ),
    "exited unexpectedly": Loss("UnexpectedExit", "Succeeded", {"trainer": End(0, STOPPED)}),
    "its node was restarted": Loss(
        "ContainerLost", ends={"trainer": End(137, reason="ContainerStatusUnknown"), "environment": End(137)}
    ),
}


@pytest.mark.parametrize("loss", INFRASTRUCTURE.values(), ids=INFRASTRUCTURE)
def test_an_infrastructure_failure_is_not_counted(runs: RunsNamespace, loss: Loss) -> None:
    runs.apply(backoffLimit=0)
    first = runs.until_pod()
    runs.kubelet.start(first)
    runs.kubelet.end(first, loss.phase, more=loss.more, **loss.ends)
    runs.succeed(runs.until_pod(attempt=2), attempt=2)
    status = runs.status()
    assert [attempt["reason"] for attempt in status["attempts"]] == [loss.reason, "Succeeded"]
    assert "failedAttempts" not in status


def test_a_pod_rejected_by_its_node_is_followed_by_another(runs: RunsNamespace) -> None:
    runs.apply(backoffLimit=0)
    first = runs.until_pod()
    runs.kubelet.bind(first)
    runs.kubelet.write(first, "Failed", {}, reason="OutOfcpu", message="Pod was rejected: not enough cpu")
    runs.until_pod(attempt=2)
    status = runs.status()
    assert [attempt["reason"] for attempt in status["attempts"]] == ["PodRejected"]
    assert status["failure"]["message"] == "OutOfcpu: Pod was rejected: not enough cpu"


WAITING = {
    "image missing": ("ImagePullBackOff", "ImageNotPulled", 'Back-off pulling image "tinker-atropos:dev"'),
    "ConfigMap missing": ("CreateContainerConfigError", "ContainerConfigMissing", 'configmap "x" not found'),
}


@pytest.mark.parametrize(("waits_for", "reason", "message"), WAITING.values(), ids=WAITING)
def test_the_reason_a_container_waits_is_shown(runs: RunsNamespace, waits_for: str, reason: str, message: str) -> None:
    runs.apply()
    pod = runs.until_pod()
    runs.kubelet.bind(pod)
    states = {"api": running(ready=True), TRAINER: waiting(waits_for, message), ENVIRONMENT: running(ready=False)}
    runs.kubelet.write(pod, "Pending", states)
    wait_for(f"the reason {reason}", lambda: (runs.condition("Reconciling") or {}).get("reason") == reason)
    assert message in runs.status()["message"]
    assert runs.status()["phase"] == "Starting"


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
