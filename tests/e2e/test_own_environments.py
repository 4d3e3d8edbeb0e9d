"""Untrusted environments on a real kubelet and behind real NetworkPolicies: they train, and every wall holds."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import EVERY_GROUP, ROOT, Kubectl
from tests.e2e.test_sorting import finish

nightly = pytest.mark.nightly(
    "operator/src/rl_operator/render", "operator/src/rl_operator/status", "operator/src/rl_operator/reconcile"
)

pytestmark = pytest.mark.timeout(2400)

ENVIRONMENTS = ROOT / "tests" / "data" / "environments"
REFUSED_ROUTES = ("batches", "progress", "registration")
"""Walls that the api itself is: it must answer 403."""

KNOCK = """
import socket, sys
for port in (8002, 8000, 8001):
    try:
        socket.create_connection((sys.argv[1], port), timeout=3).close()
        print(port, "open")
    except OSError as error:
        print(port, "held", error)
"""


LASTING = {"total_steps": 60, "steps_per_eval": 0, **EVERY_GROUP}


def own_environment(name: str, source: Path, **spec: Any) -> list[dict[str, Any]]:
    """The two objects that an author applies."""
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-source"},
        "data": {source.name: source.read_text(encoding="utf-8")},
    }
    environment = {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLEnvironment",
        "metadata": {"name": name},
        "spec": {"source": {"configMap": {"name": f"{name}-source"}}, **spec},
    }
    return [config_map, environment]


def run_of(name: str, environment: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLTrainingRun",
        "metadata": {"name": name},
        "spec": {"environment": environment, "runtime": "tiny", **spec},
    }


def apply(kubectl: Kubectl, namespace: str, *documents: dict[str, Any]) -> None:
    kubectl(
        "-n", namespace, "apply", "-f", "-", stdin=json.dumps({"kind": "List", "apiVersion": "v1", "items": documents})
    )


def environment_pods(kubectl: Kubectl, namespace: str, run: str) -> list[dict[str, Any]]:
    selector = f"rl-operator.dev/run={run},app.kubernetes.io/component=environment"
    found: list[dict[str, Any]] = kubectl.json("-n", namespace, "get", "pods", "-l", selector)["items"]
    return found


def test_every_limit_holds_and_the_run_succeeds(installed: Kubectl, namespace_with_service: str) -> None:
    kubectl, namespace = installed, namespace_with_service
    apply(kubectl, namespace, *own_environment("walls", ENVIRONMENTS / "walls.py"))
    kubectl.patiently("-n", namespace, "wait", "--for=condition=Ready", "rlenv/walls")
    apply(kubectl, namespace, run_of("walls", "own/walls", config=LASTING))
    kubectl.patiently("-n", namespace, "wait", "--for=condition=Ready", "rlrun/walls")

    # Nobody else of the namespace comes in.
    address = kubectl.json("-n", namespace, "get", "rlrun", "walls")["status"]["podName"]
    ip = kubectl.json("-n", namespace, "get", "pod", address)["status"]["podIP"]
    knocks = kubectl("-n", namespace, "exec", "deploy/tinker-service", "--", "python", "-c", KNOCK, ip)
    assert re.findall(r"^(\d+) (\w+)", knocks, re.MULTILINE) == [
        ("8002", "held"),
        ("8000", "held"),
        ("8001", "held"),
    ], knocks

    [pod] = environment_pods(kubectl, namespace, "walls")
    said = kubectl("-n", namespace, "logs", pod["metadata"]["name"])
    status = finish(kubectl, namespace, "walls")["status"]
    assert status["phase"] == "Succeeded", json.dumps(status, indent=2)

    walls = {name: (verdict, detail) for name, verdict, detail in re.findall(r"WALL (\S+) (\w+) (.*)", said)}
    assert len(walls) >= 16, said
    assert {name: wall for name, wall in walls.items() if wall[0] != "held"} == {}
    for name in REFUSED_ROUTES:
        assert "403" in walls[name][1], walls[name]

    # Over is over: no environment pod goes on; the last one stays for its log.
    for each in environment_pods(kubectl, namespace, "walls"):
        over = "--for=jsonpath={.status.phase}=Succeeded"
        kubectl.patiently("-n", namespace, "wait", over, f"pod/{each['metadata']['name']}")


@nightly
def test_a_broken_file_is_named_and_a_fixed_one_runs(installed: Kubectl, namespace: str) -> None:
    kubectl = installed
    objects = own_environment("broken", ENVIRONMENTS / "syntax_error.py")
    apply(kubectl, namespace, *objects, run_of("broken", "own/broken", config={"total_steps": 3}))
    kubectl.patiently("-n", namespace, "wait", "--for=condition=Stalled", "rlrun/broken")
    run = kubectl.json("-n", namespace, "get", "rlrun", "broken")["status"]
    assert run["refusals"][0]["code"] == "EnvironmentNotReady"
    assert re.search(r"syntax_error\.py.*line \d+", run["message"]), run["message"]
    assert kubectl.json("-n", namespace, "get", "pods", "-l", "rl-operator.dev/run")["items"] == []

    apply(kubectl, namespace, *own_environment("broken", ENVIRONMENTS / "walls.py"))
    status = finish(kubectl, namespace, "broken")["status"]
    assert status["phase"] == "Succeeded", json.dumps(status, indent=2)


@nightly
def test_more_replicas_a_death_and_fewer(installed: Kubectl, namespace: str) -> None:
    """Two of a bundled environment from the start; the one apart is killed and replaced while the run goes on."""
    kubectl = installed
    apply(
        kubectl,
        namespace,
        run_of("pair", "sort_digits", environmentReplicas=2, config=LASTING),
    )
    kubectl.patiently("-n", namespace, "wait", "--for=condition=Ready", "rlrun/pair")
    kubectl.patiently("-n", namespace, "wait", "--for=jsonpath={.status.environments.ready}=1", "rlrun/pair")
    [first] = environment_pods(kubectl, namespace, "pair")
    name = first["metadata"]["name"]
    kubectl("-n", namespace, "delete", "pod", name, "--grace-period=0", "--force", timeout=60)
    status = finish(kubectl, namespace, "pair")["status"]
    assert status["phase"] == "Succeeded", json.dumps(status, indent=2)
    assert status["attempt"] == 1
