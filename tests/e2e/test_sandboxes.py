"""Sandbox pods on a real kubelet, behind real NetworkPolicies: agents learn with them, and hostile ones stay inside."""

import json
import re
import time
from typing import Any

import pytest
from tests.e2e.conftest import EVERY_GROUP, Kubectl
from tests.e2e.test_own_environments import ENVIRONMENTS, KNOCK, apply, own_environment, run_of
from tests.e2e.test_sorting import finish
from tests.integration.cluster.polling import wait_for

pytestmark = pytest.mark.timeout(2400)

FEW_STEPS = {
    "rollout_seconds": 120,
    "total_steps": 3,
    "group_size": 4,
    "batch_size": 8,
    "steps_per_eval": 0,
    "eval_items": 8,
}
LENGTHS: dict[str, Any] = {"config": {"max_token_length": 512}, "trainer": {"max_token_trainer_length": 512}}
SMALL = {"requests": {"cpu": "10m", "memory": "32Mi"}}


def sandboxes(kubectl: Kubectl, namespace: str, run: str) -> list[dict[str, Any]]:
    selector = f"rl-operator.dev/run={run},app.kubernetes.io/component=sandbox"
    found: list[dict[str, Any]] = kubectl.json("-n", namespace, "get", "pods", "-l", selector)["items"]
    return found


def address_of_any(kubectl: Kubectl, namespace: str, run: str) -> str | None:
    """Of one that is there: others may be replaced at this moment."""
    addresses = (pod.get("status", {}).get("podIP") for pod in sandboxes(kubectl, namespace, run))
    return next(filter(None, addresses), None)


def run_with_sandboxes(name: str, environment: str, size: int, **config: Any) -> dict[str, Any]:
    sandbox = {"size": size, "resources": SMALL}
    return run_of(
        name, environment, config={**LENGTHS["config"], **config}, trainer=LENGTHS["trainer"], sandbox=sandbox
    )


def test_an_agent_trains_with_sandboxes_whoever_dies(installed: Kubectl, namespace: str) -> None:
    kubectl = installed
    source = ENVIRONMENTS / "sandboxed_calculator.py"
    lasting = {**EVERY_GROUP, **FEW_STEPS, "total_steps": 6}
    run = run_with_sandboxes("calculator", "own/calculator", 4, **lasting)
    apply(kubectl, namespace, *own_environment("calculator", source), run)
    kubectl.patiently("-n", namespace, "wait", "--for=jsonpath={.status.sandboxes.ready}=4", "rlrun/calculator")
    kubectl.patiently("-n", namespace, "wait", "--for=condition=Ready", "rlrun/calculator")

    kill_a_sandbox(kubectl, namespace, "calculator")
    [lease] = kubectl.json("-n", "rl-operator", "get", "leases")["items"]
    kubectl("-n", "rl-operator", "delete", "pod", lease["spec"]["holderIdentity"].split("_")[0], "--wait=false")
    environment = "rl-operator.dev/run=calculator,app.kubernetes.io/component=environment"
    [pod] = kubectl.json("-n", namespace, "get", "pods", "-l", environment)["items"]
    kill(kubectl, namespace, pod["metadata"]["name"])
    held = {each["metadata"]["uid"] for each in sandboxes(kubectl, namespace, "calculator")}

    status = finish(kubectl, namespace, "calculator")["status"]
    assert status["phase"] == "Succeeded", json.dumps(status, indent=2)
    assert status["attempt"] == 1
    assert status["sandboxes"]["replaced"] >= 6 * 8 / 2, "a sandbox for each rollout that called its tool"
    said = kubectl("-n", namespace, "logs", status["podName"], "-c", "trainer")
    rewards = [float(reward) for reward in re.findall(r"rollout reward (\S+)", said)]
    assert max(rewards) > 0.3, "a call alone is worth 0.25, its result more"
    assert held.isdisjoint(until_none(kubectl, namespace, "calculator"))


def kill_a_sandbox(kubectl: Kubectl, namespace: str, run: str) -> None:
    """The newest that is there: an older one may be replaced at this moment, as its rollout has ended."""
    pods = sorted(sandboxes(kubectl, namespace, run), key=lambda pod: pod["metadata"]["creationTimestamp"])
    assert any(kill(kubectl, namespace, pod["metadata"]["name"], check=False) for pod in reversed(pods))


def kill(kubectl: Kubectl, namespace: str, pod: str, *, check: bool = True) -> str:
    return kubectl("-n", namespace, "delete", "pod", pod, "--grace-period=0", "--force", timeout=60, check=check)


def until_none(kubectl: Kubectl, namespace: str, run: str) -> list[str]:
    """Those that are left when the run is over: none, within a minute."""
    deadline = time.monotonic() + 120
    while (left := sandboxes(kubectl, namespace, run)) and time.monotonic() < deadline:
        kubectl("-n", namespace, "wait", "--for=delete", f"pod/{left[0]['metadata']['name']}", check=False)
    assert not left, [each["metadata"]["name"] for each in left]
    return []


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/sandboxes", "operator/src/rl_operator/render")
def test_a_hostile_agent_stays_inside(installed: Kubectl, namespace_with_service: str) -> None:
    kubectl, namespace = installed, namespace_with_service
    objects = own_environment("hostile", ENVIRONMENTS / "hostile_sandbox.py")
    all_of_them = {
        **EVERY_GROUP,
        "rollout_seconds": 120,
        "total_steps": 3,
        "group_size": 2,
        "batch_size": 10,
        "eval_items": 1,
        "steps_per_eval": 0,
    }
    run = run_with_sandboxes("hostile", "own/hostile", 6, **all_of_them)
    apply(kubectl, namespace, *objects, run)
    kubectl.patiently("-n", namespace, "wait", "--for=condition=Ready", "rlrun/hostile")
    address = wait_for("a sandbox has an address", lambda: address_of_any(kubectl, namespace, "hostile"))
    knock = KNOCK.replace("(8002, 8000, 8001)", "(8090,)")
    knocked = kubectl("-n", namespace, "exec", "deploy/tinker-service", "--", "python", "-c", knock, address)
    assert knocked.startswith("8090 held"), "nobody else of the namespace comes in"
    status = finish(kubectl, namespace, "hostile")["status"]
    environment = "rl-operator.dev/run=hostile,app.kubernetes.io/component=environment"
    said = kubectl("-n", namespace, "logs", "-l", environment, "--tail=-1")
    assert status["phase"] == "Succeeded", json.dumps(status, indent=2) + said

    attempts = re.findall(r"WALL (\S+) (\w+) (.*)", said)
    assert len({name for name, _, _ in attempts}) == 15, said
    assert [attempt for attempt in attempts if attempt[1] != "held"] == []
    for name in ("network", "others"):
        assert [detail for of, _, detail in attempts if of == name and re.search(r"of [1-9]", detail)], (
            "there was something to reach"
        )
    until_none(kubectl, namespace, "hostile")
