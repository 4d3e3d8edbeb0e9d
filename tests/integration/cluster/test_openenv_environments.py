"""RLEnvironments of OpenEnv servers: what the API server takes and refuses, and the pods that the operator creates."""

from typing import Any

import pytest
from tests.integration.cluster.admin import ENVIRONMENTS, ApiError
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import RunsNamespace

from rl_operator.documents.parse import parse_environment

IMAGE = {"image": "registry.test/echo:1"}
DEFAULTS = {
    "port": 8000,
    "readOnlyRootFilesystem": True,
    "maxSessions": 16,
    "timeoutSeconds": 60,
    "trainingSeeds": 100_000,
    "heldOutSeeds": 100,
}


def body(openenv: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLEnvironment",
        "metadata": {"name": "echo"},
        "spec": {"openenv": openenv, **spec},
    }


def try_out(runs: RunsNamespace, document: dict[str, Any]) -> dict[str, Any]:
    path = ENVIRONMENTS.format(namespace=runs.namespace)
    answer: dict[str, Any] = runs.admin.post(f"{path}?dryRun=All&fieldValidation=Strict", document)
    return answer


TAKEN: dict[str, dict[str, Any]] = {
    "an image": IMAGE,
    "a command of an image": {**IMAGE, "command": ["serve", "--port", "$PORT"]},
    "all of it": {
        **IMAGE,
        "port": 65_535,
        "maxSessions": 1024,
        "timeoutSeconds": 3600,
        "heldOutSeeds": 100_000,
        "trainingSeeds": 10_000_000,
        "readOnlyRootFilesystem": False,
        "pullPolicy": "Never",
        "pullSecrets": [{"name": "registry"}],
        "resources": {"limits": {"memory": "1Gi", "cpu": 2}},
    },
    "a URL": {"url": "http://echo.games.svc:8000"},
    "an IPv6 address": {"url": "https://[fd12::7]"},
}


@pytest.mark.parametrize("openenv", TAKEN.values(), ids=TAKEN)
def test_what_is_taken_reads_the_same_everywhere(runs: RunsNamespace, openenv: dict[str, Any]) -> None:
    stored = try_out(runs, body(openenv))
    assert stored["spec"]["openenv"] == DEFAULTS | openenv
    assert parse_environment(stored).spec == parse_environment(body(openenv)).spec


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "nothing": ({}, {}, "give exactly one of image and url"),
    "a command alone": ({"command": ["serve"]}, {}, "a command without an image is for local mode"),
    "both": ({**IMAGE, "url": "http://echo"}, {}, "give exactly one of image and url"),
    "a command elsewhere": ({"url": "http://echo", "command": ["serve"]}, {}, "command belongs to an image"),
    "a path": ({"url": "http://echo:8000/env"}, {}, "spec.openenv.url"),
    "a user": ({"url": "http://me:secret@echo"}, {}, "spec.openenv.url"),
    "another scheme": ({"url": "ws://echo"}, {}, "spec.openenv.url"),
    "our port": ({**IMAGE, "port": 8004}, {}, "port 8004 is taken"),
    "no port": ({**IMAGE, "port": 0}, {}, "spec.openenv.port"),
    "too many sessions": ({**IMAGE, "maxSessions": 1025}, {}, "spec.openenv.maxSessions"),
    "no time": ({**IMAGE, "timeoutSeconds": 0}, {}, "spec.openenv.timeoutSeconds"),
    "nothing held out": ({**IMAGE, "heldOutSeeds": 0}, {}, "spec.openenv.heldOutSeeds"),
    "variables": ({**IMAGE, "env": [{"name": "KEY", "value": "x"}]}, {}, 'unknown field "spec.openenv.env"'),
    "keys": (IMAGE, {"secretEnvironment": [{"name": "a", "key": "B"}]}, "an OpenEnv server gets no keys"),
    "code, too": (IMAGE, {"source": {"configMap": {"name": "x"}}}, "exactly one of source, image and openenv"),
}


@pytest.mark.parametrize(("openenv", "spec", "complaint"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_named(
    runs: RunsNamespace, openenv: dict[str, Any], spec: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ApiError) as caught:
        try_out(runs, body(openenv, **spec))
    assert caught.value.code in (400, 422)
    assert complaint in caught.value.message


def test_neither_code_nor_image_nor_server(runs: RunsNamespace) -> None:
    empty = body({})
    empty["spec"] = {}
    with pytest.raises(ApiError, match="exactly one of source, image and openenv"):
        try_out(runs, empty)


def test_it_is_ready_at_once_and_its_pods_have_the_server(runs: RunsNamespace) -> None:
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    runs.admin.patch(f"/api/v1/namespaces/{runs.namespace}", {"metadata": {"labels": restricted}})
    environments = ENVIRONMENTS.format(namespace=runs.namespace)
    runs.admin.post(environments, body(IMAGE))

    def ready() -> dict[str, Any] | None:
        status = runs.admin.get(f"{environments}/echo").get("status", {})
        return next((c for c in status.get("conditions", []) if (c["type"], c["status"]) == ("Ready", "True")), None)

    assert wait_for("the RLEnvironment is ready", ready)["reason"] == "ServerNamed"
    runs.apply(environment="own/echo")
    runs.kubelet.start(runs.until_pod(), "127.255.0.1")

    def environment_pod() -> dict[str, Any] | None:
        return next((pod for pod in runs.kubelet.pods() if "-env-" in pod["metadata"]["name"]), None)

    pod = wait_for("the environment's pod", environment_pod)
    assert [each["name"] for each in pod["spec"]["initContainers"]] == ["openenv"]
    assert pod["spec"]["hostAliases"][0]["ip"] == "127.255.0.1"

    refused = {"reason": "ImagePullBackOff", "message": "Back-off pulling image registry.test/echo:1"}
    server = {"name": "openenv", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    statuses = [server | {"state": {"waiting": refused}}]
    path = f"/api/v1/namespaces/{runs.namespace}/pods/{pod['metadata']['name']}/status"
    runs.admin.patch(path, {"status": {"phase": "Pending", "initContainerStatuses": statuses}})
    words = "Container openenv of pod"
    wait_for("the run says so", lambda: words in runs.status().get("message", ""))
