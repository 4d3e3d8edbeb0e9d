"""Every way in which a container ends a run, and what the status then says."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.integration.cluster.kubelet import ENVIRONMENT, TRAINER, End, result, running, waiting
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

PROGRAMME = {
    "trainer": Case(
        {"trainer": End(1, failed("internal", "loss is nan"))}, "TrainerFailed", "trainer", "loss is nan", 1
    ),
    "trainer out of memory": Case(
        {"trainer": End(137, result("running", steps=2, total=TOTAL_STEPS), reason="OOMKilled")},
        "OOMKilled", "trainer", "", 137,
    ),
    "trainer without a word": Case({"trainer": End(1, "Traceback\nKeyError: 'x'")}, "TrainerFailed", "trainer",
        "KeyError: 'x'", 1),
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
    """Play the case on a run that has one attempt only; gives its status."""
    runs.apply(backoffLimit=0)
    pod = runs.until_pod()
    runs.kubelet.start(pod)
    runs.kubelet.work(pod)
    runs.until_phase("Running")
    runs.kubelet.end(pod, "Failed", **case.ends)
    status = runs.until_phase("Failed")
    runs.until_released(pod)
    return status


@pytest.mark.parametrize("case", [*FINAL.values(), *PROGRAMME.values()], ids=[*FINAL, *PROGRAMME])
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
def test_what_trying_again_cannot_mend_is_not_tried_again(runs: RunsNamespace, case: Case) -> None:
    runs.apply(backoffLimit=3)
    pod = runs.until_pod()
    runs.kubelet.start(pod)
    runs.kubelet.end(pod, "Failed", **case.ends)
    assert runs.until_phase("Failed")["attempt"] == 1


def test_a_programme_failure_is_tried_again_from_the_checkpoint(runs: RunsNamespace) -> None:
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


INFRASTRUCTURE = {
    "backend unreachable": ("Failed", {"trainer": End(4, failed("backend", "no answer for 600 s"))}, {}),
    "evicted": ("Failed", {}, {"reason": "Evicted", "message": "The node was low on memory."}),
    "evicted, though the phase says Succeeded": (
        "Succeeded", {"trainer": End(0, result("stopped", steps=2, total=TOTAL_STEPS))},
        {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]},
    ),
    "stopped unasked": ("Succeeded", {"trainer": End(0, result("stopped", steps=2, total=TOTAL_STEPS))}, {}),
}  # fmt: skip


@pytest.mark.parametrize(("phase", "ends", "more"), INFRASTRUCTURE.values(), ids=INFRASTRUCTURE)
def test_a_loss_of_infrastructure_is_not_counted(
    runs: RunsNamespace, phase: str, ends: dict[str, End], more: dict[str, Any]
) -> None:
    runs.apply(backoffLimit=0)
    first = runs.until_pod()
    runs.kubelet.start(first)
    runs.kubelet.end(first, phase, **ends, **more)
    runs.succeed(runs.until_pod(attempt=2), attempt=2)
    assert "failedAttempts" not in runs.status()


WAITING = {
    "image missing": ("ImagePullBackOff", "ImageNotPulled", 'Back-off pulling image "tinker-atropos:dev"'),
    "ConfigMap missing": ("CreateContainerConfigError", "ContainerConfigMissing", 'configmap "x" not found'),
}


@pytest.mark.parametrize(("waits_for", "reason", "message"), WAITING.values(), ids=WAITING)
def test_what_a_container_waits_for_is_said(runs: RunsNamespace, waits_for: str, reason: str, message: str) -> None:
    runs.apply()
    pod = runs.until_pod()
    runs.kubelet.bind(pod)
    states = {"api": running(ready=True), TRAINER: waiting(waits_for, message), ENVIRONMENT: running(ready=False)}
    runs.kubelet.write(pod, "Pending", states)
    wait_for(f"the reason {reason}", lambda: (runs.condition("Reconciling") or {}).get("reason") == reason)
    assert message in runs.status()["message"]
    assert runs.status()["phase"] == "Starting"
