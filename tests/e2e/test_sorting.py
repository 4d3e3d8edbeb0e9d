"""A run on a real kubelet, from `kubectl apply` to trained weights, as a user sees it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import EVERY_GROUP, PATIENCE_SECONDS, ROOT, Kubectl, install_service
from tests.integration.cluster.polling import wait_for

nightly = pytest.mark.nightly(
    "tinker-atropos/src/tinker_atropos/trainer", "tinker-atropos/src/tinker_atropos/environments/adapters/reasoning_gym"
)

STEPS = 1000
EVALUATED_EVERY = 50
BUDGET = 20
"""Of a run that its budget ends before its first evaluation, and that evaluation before its last step."""

pytestmark = pytest.mark.timeout(2400)


def finish(kubectl: Kubectl, namespace: str, name: str) -> dict[str, Any]:
    """Wait for condition Finished (it comes in every case) and give the run."""
    kubectl.patiently("-n", namespace, "wait", "--for=condition=Finished", f"rlrun/{name}", check=False)
    run = kubectl.json("-n", namespace, "get", "rlrun", name)
    status = run.get("status", {})
    if ("Finished", "True") not in {(each["type"], each["status"]) for each in status.get("conditions", [])}:
        pytest.fail(f"{name} has not finished within {PATIENCE_SECONDS} s: {json.dumps(status, indent=2)}")
    return run


def rlctl(*arguments: str, by: Kubectl | None = None) -> str:
    """As that user, or as an administrator."""
    command = [Path(sys.executable).with_name("rlctl"), *arguments]
    env_vars = by.env_vars if by else None
    done = subprocess.run(command, env=env_vars, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


SORTING = str(ROOT / "examples" / "sorting-cluster.yaml")


def test_sorting_learns_for_a_user_with_the_role_edit(editor: Kubectl, empty_namespace: str) -> None:
    """README's walk, after what its administrator does: no call here takes more than that role in the namespace."""
    kubectl, namespace = editor, empty_namespace
    install_service(kubectl, namespace)
    assert "is accepted by runtime tiny" in rlctl("validate", SORTING, by=kubectl)
    assert "sort_digits" in rlctl("environments", "--runtime", "tiny", by=kubectl)
    kubectl("-n", namespace, "apply", "-f", SORTING)
    assert "sorting" in rlctl("run", SORTING, "--detach", by=kubectl)
    kubectl.patiently("wait", "--for=jsonpath={.status.phase}=Running", "rlrun/sorting")
    assert "sorting" in rlctl("list", by=kubectl)
    wait_for("rollouts are read while the run trains", lambda: rollouts_seen(kubectl), seconds=120)
    run = finish(kubectl, namespace, "sorting")
    status = run["status"]
    assert status["phase"] == "Succeeded", json.dumps(status, indent=2)
    assert status["progress"]["step"] == status["progress"]["totalSteps"] == 40

    # The held-out figure rose, and the intervals are apart.
    metrics = status["metrics"]
    assert metrics["baseline"]["value"] < 0.65
    assert metrics["heldOut"]["value"] >= 0.85
    assert metrics["heldOut"]["low"] > metrics["baseline"]["high"]
    assert status["weights"]["samplerPath"].startswith("tinker://")
    assert status["attempt"] == 1

    # What people look at.
    table = kubectl("-n", namespace, "get", "rlruns")
    header, row = table.splitlines()[:2]
    assert header.split()[:2] == ["NAME", "PHASE"]
    assert row.split()[:2] == ["sorting", "Succeeded"]
    pod = status["podName"]
    for container, said in {"trainer": "step 40", "api": "", "environment": ""}.items():
        assert said in kubectl("-n", namespace, "logs", pod, "-c", container)
    assert "step 40/40" in rlctl("logs", "sorting", "-c", "trainer", by=kubectl)
    assert "95 % intervals over" in rlctl("results", "sorting", by=kubectl)
    assert "Succeeded" in rlctl("get", "sorting", by=kubectl)
    events = kubectl("-n", namespace, "get", "events", "--field-selector=involvedObject.kind=RLTrainingRun")
    assert "Succeeded" in events

    # No secret stands where it must not.
    config_map = kubectl("-n", namespace, "get", "configmap", status["configMapName"], "-o", "yaml")
    assert "tml-" not in config_map
    assert "tml-" not in json.dumps(run)

    kubectl.patiently("-n", namespace, "delete", "rlrun", "sorting")
    kubectl.patiently("-n", namespace, "wait", "--for=delete", f"pod/{pod}")
    children = kubectl("-n", namespace, "get", "pods,configmaps", "-l", "rl-operator.dev/run=sorting", "-o", "name")
    assert children == ""


def rollouts_seen(kubectl: Kubectl) -> bool:
    """Of a step that is trained; there is none yet at first."""
    command = [Path(sys.executable).with_name("rlctl"), "rollouts", "sorting"]
    done = subprocess.run(command, env=kubectl.env_vars, capture_output=True, text=True, timeout=60, check=False)
    assert "answered 403" not in done.stderr, done.stderr
    return done.returncode == 0 and "step" in done.stdout


@nightly
def test_a_task_of_reasoning_gym_learns(installed: Kubectl, namespace: str) -> None:
    """Its generators and graders run in processes of their own, in a pod whose root is read-only."""
    kubectl = installed
    kubectl("-n", namespace, "apply", "-f", str(ROOT / "examples" / "reasoning-gym.yaml"))
    status = finish(kubectl, namespace, "spell-backward")["status"]
    assert status["phase"] == "Succeeded", json.dumps(status, indent=2)
    metrics = status["metrics"]
    assert metrics["heldOut"]["low"] > metrics["baseline"]["high"], json.dumps(status, indent=2)


@nightly
def test_a_spent_budget_saves_and_resume_trains_on_until_it_is_good_enough(installed: Kubectl, namespace: str) -> None:
    """An attempt ends with a checkpoint before it costs more than it may; the next one, with a higher budget, trains
    no step twice, and ends early.
    """
    kubectl = installed
    run = {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLTrainingRun",
        "metadata": {"name": "pause"},
        "spec": {
            "environment": "sort_digits",
            "runtime": priced_runtime(kubectl),
            "config": {"total_steps": STEPS, "steps_per_eval": EVALUATED_EVERY, **EVERY_GROUP},
            "trainer": {"early_stopping": {"stop_at": 0.3}},
            "budget": {"amount": BUDGET, "currency": "USD"},
        },
    }
    kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps(run))
    kubectl.patiently("-n", namespace, "wait", "--for=condition=Suspended", "rlrun/pause")
    stopped = kubectl.json("-n", namespace, "get", "rlrun", "pause")["status"]
    saved, spent = stopped["checkpoint"]["step"], stopped["cost"]["amount"]
    assert (stopped["phase"], 0 < saved < EVALUATED_EVERY, 0 < spent <= BUDGET) == ("Stopped", True, True), stopped
    assert ("Suspended", "BudgetReached") in {(each["type"], each["reason"]) for each in stopped["conditions"]}
    assert f"Stopped with a checkpoint of step {saved} of {STEPS}; to go on, raise spec.budget" in stopped["message"]
    assert [(each["reason"], each["steps"]) for each in stopped["attempts"]] == [("BudgetReached", saved)]
    assert "failure" not in stopped
    assert f"rlctl resume pause --budget AMOUNT -n {namespace}" in rlctl("results", "pause", "-n", namespace)

    rlctl("resume", "pause", "--budget", str(1000 * BUDGET), "-n", namespace)
    status = finish(kubectl, namespace, "pause")["status"]
    assert status["phase"] == "Succeeded", json.dumps(status, indent=2)
    second = status["attempts"][1]
    assert (second["reason"], second["fromStep"]) == ("Succeeded", saved)
    progress = status["progress"]
    assert EVALUATED_EVERY <= progress["step"] == second["steps"] < STEPS
    assert "reached trainer.early_stopping.stop_at 0.3" in progress["stoppedEarly"]
    assert status["message"].startswith(f"Stopped early at step {progress['step']}: held-out ")
    assert status["cost"]["amount"] > spent
    told = rlctl("results", "pause", "-n", namespace)
    assert f"trained sort_digits for {progress['step']} steps" in told
    codes = {each["name"]: each.get("exitCode") for each in status["containers"]}
    assert codes == {"api": 0, "trainer": 0, "environment": 0}


def priced_runtime(kubectl: Kubectl) -> str:
    """The tiny one with prices, so that a step costs about 1 USD."""
    spec = kubectl.json("get", "rlruntime", "tiny")["spec"]
    prices = {"prefill": 1000, "sample": 1000, "train": 1000}
    name = "tiny-priced"
    priced = {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLRuntime",
        "metadata": {"name": name},
        "spec": {**spec, "backend": {**spec["backend"], "prices": prices}},
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(priced))
    return name
