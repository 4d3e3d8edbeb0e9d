"""The kubelet's words (measured with 1.36.3) next to the sources of a pod's variables."""

from typing import Any

import pytest
from tests.unit.rl_operator.status.builders import CREATED, make_view, running, waiting

from rl_operator.status.attempt.start_waits import missing_secrets
from rl_operator.status.observed.observation import PodObservation, SecretUse, observe_pod
from rl_operator.status.phase_and_action import assess

Container = dict[str, Any]
NO_SECRET = waiting("CreateContainerConfigError", 'secret "tinker" not found')
NO_KEY = waiting("CreateContainerConfigError", "couldn't find key TINKER_API_KEY in Secret team-a/tinker")


def variable(name: str, secret: str, key: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key, **more}}}


VARIABLES = {
    "api": [{"name": "RL_OPS_PORT", "value": "8003"}],
    "trainer": [
        variable("TINKER_API_KEY", "tinker", "TINKER_API_KEY"),
        variable("WANDB_API_KEY", "wandb", "WANDB_API_KEY", optional=True),
    ],
    "environment": [variable("JUDGE", "judge", "KEY"), variable("SEARCH", "tinker", "SEARCH")],
}


def pod_with(**states: Container) -> PodObservation:
    containers = [{"name": name, "env": variables} for name, variables in VARIABLES.items()]
    statuses = [{"name": name, **states.get(name, running())} for name in VARIABLES]
    return observe_pod(
        {
            "metadata": {"name": "p", "namespace": "team-a", "creationTimestamp": CREATED},
            "spec": {"nodeName": "n", "initContainers": containers[:1], "containers": containers[1:]},
            "status": {
                "phase": "Pending",
                "initContainerStatuses": statuses[:1],
                "containerStatuses": statuses[1:],
            },
        }
    )


NO_KEY_SENTENCE = (
    "Secret team-a/tinker has no key TINKER_API_KEY: kubectl -n team-a patch secret tinker "
    """-p '{"stringData": {"TINKER_API_KEY": "…"}}'"""
)
NO_SECRET_SENTENCE = (
    "Secret team-a/tinker does not exist: "
    "kubectl -n team-a create secret generic tinker --from-literal=TINKER_API_KEY=…"
)


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ({}, None),
        ({"trainer": waiting()}, None),
        ({"trainer": waiting("ImagePullBackOff", 'secret "tinker" not found')}, None),
        ({"trainer": waiting("CreateContainerConfigError", 'configmap "x" not found')}, None),
        ({"api": NO_SECRET}, None),  # it reads nothing from a Secret: the pod was changed
        ({"trainer": NO_KEY}, NO_KEY_SENTENCE),
        ({"trainer": NO_SECRET}, NO_SECRET_SENTENCE),
    ],
    ids=["working", "waiting", "no image", "ConfigMap", "a stranger's", "no key", "no Secret"],
)
def test_missing_secrets(states: dict[str, Container], said: str | None) -> None:
    assert missing_secrets(pod_with(**states)) == said


def test_two_secrets_are_two_sentences() -> None:
    no_judge = waiting("CreateContainerConfigError", 'secret "judge" not found')
    assert missing_secrets(pod_with(trainer=NO_KEY, environment=no_judge)) == (
        f"{NO_KEY_SENTENCE} Secret team-a/judge does not exist: "
        "kubectl -n team-a create secret generic judge --from-literal=KEY=…"
    )


def test_the_same_secret_is_named_once() -> None:
    said = missing_secrets(pod_with(trainer=NO_SECRET, environment=NO_SECRET))
    assert said == (
        "Secret team-a/tinker does not exist: kubectl -n team-a create secret generic tinker "
        "--from-literal=SEARCH=… --from-literal=TINKER_API_KEY=…"
    )


def test_only_a_container_that_waits_for_secrets_lists_them() -> None:
    trainer, environment = (pod_with(trainer=NO_KEY).container(name) for name in ("trainer", "environment"))
    assert trainer.secrets == (SecretUse("TINKER_API_KEY", "tinker", "TINKER_API_KEY"),)
    assert environment.secrets == ()


def test_it_is_what_a_starting_run_waits_for() -> None:
    status = {"startTime": CREATED, "attempt": 1}
    assessment = assess(make_view(status, pod=pod_with(trainer=NO_KEY)))
    assert (assessment.reason, assessment.message) == ("SecretMissing", NO_KEY_SENTENCE)
