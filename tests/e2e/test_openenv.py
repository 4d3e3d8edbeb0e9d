"""OpenEnv servers beside environments, on a real kubelet and behind real NetworkPolicies: the run trains, the server
stays behind its walls, and what it does wrong is said.

The server is tests/data/programs/openenv_server.py. It needs nothing but what the image tinker-atropos has, so its
text is the command of that image, and no other image is needed. One that has it as its entry point may be named
instead: RL_OPENENV_IMAGE=openenv-hostile:dev.
"""

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from tests.e2e.conftest import PATIENCE_SECONDS, ROOT, Kubectl
from tests.e2e.test_own_environments import apply, environment_pods, run_of
from tests.e2e.test_sorting import finish
from tests.integration.cluster.polling import wait_for

nightly = pytest.mark.nightly(
    "tinker-atropos/src/tinker_atropos/environments/adapters/openenv", "operator/src/rl_operator/render"
)

pytestmark = pytest.mark.timeout(2400)

PROGRAMS = ROOT / "tests" / "data" / "programs"
SERVER = (PROGRAMS / "openenv_server.py").read_text(encoding="utf-8")
IMAGE = os.environ.get("RL_OPENENV_IMAGE", "")
SORTING = {
    "system_prompt": "",
    "max_turns": 1,
    "max_token_length": 32,
    "group_size": 8,
    "batch_size": 32,
    "steps_per_eval": 100,
    "eval_items": 32,
}
"""The bundled model knows this task: `sort 4 1 3 2` alone, and one answer."""


SMALL = {"requests": {"cpu": "10m"}, "limits": {"cpu": "1"}}
"""Five at once fit onto a node with two processors."""


def openenv(name: str, mode: str, **spec: Any) -> dict[str, Any]:
    server = {"image": "tinker-atropos:dev", "command": ["python", "-c", SERVER, mode]}
    image = {"image": IMAGE, "command": ["python", "/openenv_server.py", mode]} if IMAGE else server
    return {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLEnvironment",
        "metadata": {"name": name},
        "spec": {"openenv": {**image, "pullPolicy": "Never", "resources": SMALL, **spec}},
    }


def start(kubectl: Kubectl, namespace: str, environment: dict[str, Any], steps: int, **spec: Any) -> str:
    name: str = environment["metadata"]["name"]
    config = {**SORTING, "total_steps": steps}
    apply(kubectl, namespace, environment, run_of(name, f"own/{name}", config=config, **spec))
    return name


def says(kubectl: Kubectl, namespace: str, run: str, words: str) -> bool:
    return words in kubectl.json("-n", namespace, "get", "rlrun", run)["status"].get("message", "")


def serving_pod(kubectl: Kubectl, namespace: str, run: str) -> dict[str, Any]:
    """The environment's pod, while the run trains: soon after its end it is gone."""
    kubectl.patiently("-n", namespace, "wait", "--for=condition=Ready", f"rlrun/{run}")
    [pod] = environment_pods(kubectl, namespace, run)
    return pod


def test_every_wall_holds_and_the_run_succeeds(installed: Kubectl, namespace: str) -> None:
    kubectl = installed
    run = start(kubectl, namespace, openenv("walls", "walls"), steps=4)
    pod = serving_pod(kubectl, namespace, run)["metadata"]["name"]
    with ThreadPoolExecutor() as threads:
        follow = ("-n", namespace, "logs", "--follow", pod, "-c", "openenv")
        log = threads.submit(kubectl, *follow, timeout=PATIENCE_SECONDS)
        status = finish(kubectl, namespace, run)["status"]
        assert status["phase"] == "Succeeded", json.dumps(status, indent=2)
        said = log.result()
    assert status["metrics"]["heldOut"]["value"] > 0.2, status["metrics"]

    walls = {name: (verdict, detail) for name, verdict, detail in re.findall(r"WALL (\S+) (\w+) (.*)", said)}
    assert len(walls) >= 16, said
    assert {name: wall for name, wall in walls.items() if wall[0] != "held"} == {}
    for name in ("trajectory-api", "inference"):
        assert "403" in walls[name][1], walls[name]


@nightly
def test_a_server_that_ends_and_one_that_answers_nonsense(installed: Kubectl, namespace: str) -> None:
    """The first is started again, the frames of the second cost their rollouts only: both runs succeed."""
    kubectl = installed
    dies = start(kubectl, namespace, openenv("dies", "dies", timeoutSeconds=120), steps=5)
    mixed = start(kubectl, namespace, openenv("mixed", "mixed", timeoutSeconds=5), steps=5)
    pod = serving_pod(kubectl, namespace, dies)
    assert [each["name"] for each in pod["status"]["initContainerStatuses"]] == ["openenv"]
    restarted = "--for=jsonpath={.status.initContainerStatuses[0].restartCount}=1"
    kubectl.patiently("-n", namespace, "wait", restarted, f"pod/{pod['metadata']['name']}")
    status = finish(kubectl, namespace, dies)["status"]
    assert status["phase"] == "Succeeded", json.dumps(status, indent=2)
    status = finish(kubectl, namespace, mixed)["status"]
    assert status["phase"] == "Succeeded", json.dumps(status, indent=2)


TROUBLES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "no-image": ("plain", {"image": "openenv:there-is-no-such-tag"}, "ImageNotPulled", "Container openenv of pod"),
    "crashes": ("crashes", {}, "ContainerCrashing", "RuntimeError: there is no board to play on"),
    "unhealthy": ("unhealthy", {}, "PodStarting", "has not answered GET /health yet"),
    "no-memory": (
        "greedy",
        {"resources": {**SMALL, "limits": {"cpu": "1", "memory": "64Mi"}}},
        "ContainerCrashing",
        "limits.memory",
    ),
    "no-program": ("plain", {"command": ["/nowhere"]}, "ContainerCrashing", "/nowhere"),
}
"""By name: the server's mode and settings, the condition's reason, and words of the message."""


@nightly
def test_servers_that_do_not_start_are_named_with_what_to_do(installed: Kubectl, namespace: str) -> None:
    kubectl = installed
    for name, (mode, spec, _reason, _words) in TROUBLES.items():
        start(kubectl, namespace, openenv(name, mode, **spec), steps=2, startDeadlineSeconds=1800)
    for name, (_mode, _spec, reason, words) in TROUBLES.items():
        because = f"--for=jsonpath={{.status.conditions[?(@.type=='Reconciling')].reason}}={reason}"
        kubectl.patiently("-n", namespace, "wait", because, f"rlrun/{name}")
        wait_for(f"{words!r} in status.message", partial(says, kubectl, namespace, name, words), seconds=300)
        kubectl("-n", namespace, "delete", "rlrun", name)


@nightly
def test_one_that_runs_elsewhere(installed: Kubectl, namespace: str) -> None:
    """As a Deployment and a Service of the namespace; the policy lets the environment out to it."""
    kubectl = installed
    labels = {"app": "sorting-server"}
    pod = {
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "server",
                "image": "tinker-atropos:dev",
                "imagePullPolicy": "Never",
                "command": ["python", "-c", SERVER.replace("$", "$$"), "plain"],
                "env": [{"name": "PORT", "value": "8000"}],
                "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "sorting-server"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "sorting-server"},
        "spec": {"selector": labels, "ports": [{"port": 8000}]},
    }
    apply(kubectl, namespace, deployment, service)
    kubectl.patiently("-n", namespace, "wait", "--for=condition=Available", "deploy/sorting-server")
    environment = openenv("elsewhere", "plain")
    environment["spec"] = {"openenv": {"url": f"http://sorting-server.{namespace}.svc:8000"}}
    run = start(kubectl, namespace, environment, steps=3)
    assert "initContainers" not in serving_pod(kubectl, namespace, run)["spec"]
    status = finish(kubectl, namespace, run)["status"]
    assert status["phase"] == "Succeeded", json.dumps(status, indent=2)
