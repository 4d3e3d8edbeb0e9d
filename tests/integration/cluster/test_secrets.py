"""A Secret that is not there is named with namespace and key; the operator itself may read none."""

import pytest
from tests.integration.cluster.kubelet import API, ENVIRONMENT, TRAINER, running, waiting
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import RunsNamespace


def play_missing(runs: RunsNamespace, pod: str, message: str) -> None:
    """What a kubelet writes while it cannot set the trainer's variables."""
    states = {
        API: running(ready=True),
        TRAINER: waiting("CreateContainerConfigError", message),
        ENVIRONMENT: running(ready=False),
    }
    runs.kubelet.write(pod, "Pending", states)


def until_said(runs: RunsNamespace) -> str:
    def look() -> str | None:
        condition = runs.condition("Reconciling") or {}
        return str(condition["message"]) if condition.get("reason") == "SecretMissing" else None

    said = wait_for("SecretMissing is said", look)
    assert said
    return said


CASES = {
    'secret "tinker-service" not found': (
        "Secret {0}/tinker-service does not exist: "
        "kubectl -n {0} create secret generic tinker-service --from-literal=api-key=…"
    ),
    "couldn't find key api-key in Secret {0}/tinker-service": (
        "Secret {0}/tinker-service has no key api-key: "
        """kubectl -n {0} patch secret tinker-service -p '{{"stringData": {{"api-key": "…"}}}}'"""
    ),
}
"""What the kubelet says (1.36.3) -> what we say."""


@pytest.mark.parametrize(("kubelet", "said"), CASES.items(), ids=["no Secret", "no key"])
def test_a_missing_secret_is_named_and_waited_for(runs: RunsNamespace, kubelet: str, said: str) -> None:
    runs.apply()
    pod = runs.until_pod()
    runs.kubelet.bind(pod)
    play_missing(runs, pod, kubelet.format(runs.namespace))
    assert until_said(runs) == said.format(runs.namespace)
    assert runs.status()["phase"] == "Starting"

    runs.kubelet.work(pod)  # the kubelet tries again by itself
    runs.until_phase("Running")


def test_at_the_deadline_the_last_observation_is_reported(runs: RunsNamespace) -> None:
    runs.apply(startDeadlineSeconds=3)
    pod = runs.until_pod()
    runs.kubelet.bind(pod)
    play_missing(runs, pod, 'secret "tinker-service" not found')
    said = until_said(runs)
    wait_for("the pod is asked to end", lambda: "deletionTimestamp" in (runs.kubelet.pod(pod) or {})["metadata"])
    runs.kubelet.end(pod, "Failed")
    status = runs.until_phase("Failed")
    assert status["failure"]["reason"] == "StartDeadlineExceeded"
    assert status["failure"]["message"].endswith(f"Last seen: {said}")
