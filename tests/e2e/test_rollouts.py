"""Rollouts on a real cluster: read while the trainer runs, and from a PersistentVolumeClaim once its pod is gone."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import EVERY_GROUP, PATIENCE_SECONDS, ROOT, Kubectl
from tests.e2e.test_sorting import finish

from rl_operator.documents.parse import load_documents

pytestmark = pytest.mark.timeout(2400)

STEPS = 40
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "rollouts"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def runtime(name: str) -> dict[str, Any]:
    """`tiny`, whose runs keep their rollouts."""
    [document] = load_documents((ROOT / "examples" / "runtime-tiny.yaml").read_text(encoding="utf-8"))
    document["metadata"] = {"name": name}
    document["spec"]["rollouts"] = {"persistentVolumeClaim": {"claimName": "rollouts"}}
    return document


def rollouts(namespace: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("rlctl"), "rollouts", "kept", "-n", namespace, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


def until_read(namespace: str, *arguments: str) -> str:
    """Once the trainer has trained that step."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (done := rollouts(namespace, *arguments)).returncode:
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.5)
    return done.stdout


def test_rollouts_outlive_their_pod(installed: Kubectl, namespace: str) -> None:
    kubectl, name = installed, f"kept-{namespace}"
    run = {
        "apiVersion": "rl-operator.dev/v1alpha1",
        "kind": "RLTrainingRun",
        "metadata": {"name": "kept"},
        "spec": {"environment": "sort_digits", "runtime": name, "config": {"total_steps": STEPS, **EVERY_GROUP}},
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(runtime(name)))
    kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps(run))

    # The claim is missing, which the status says.
    reason = """jsonpath={.status.conditions[?(@.type=="Reconciling")].reason}=ClaimMissing"""
    kubectl.patiently("-n", namespace, "wait", f"--for={reason}", "rlrun/kept")
    message = kubectl.json("-n", namespace, "get", "rlrun", "kept")["status"]["message"]
    assert message.startswith(f"PersistentVolumeClaim {namespace}/rollouts, in which the runtime keeps rollouts")

    # Made, the run starts, and its trainer is read while it runs.
    kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps(CLAIM))
    kubectl.patiently("-n", namespace, "wait", "--for=condition=Ready", "rlrun/kept")
    live = until_read(namespace, "--step", "1", "-o", "jsonl")
    assert {"step", "group"} <= {json.loads(line)["record"] for line in live.splitlines()}
    status = finish(kubectl, namespace, "kept")["status"]
    assert status["phase"] == "Succeeded", json.dumps(status, indent=2)

    # The pod is gone; a Job reads the claim, and then another reader uses it.
    kubectl.patiently("-n", namespace, "delete", "pod", status["podName"])
    kept = rollouts(namespace, "--step", "1", "-o", "jsonl")
    assert kept.returncode == 0, kept.stderr
    assert set(live.splitlines()) <= set(kept.stdout.splitlines())
    last = json.loads(rollouts(namespace, "--step", str(STEPS), "-o", "json").stdout)
    assert last, "the last step is there, too"
    [job] = kubectl.json("-n", namespace, "get", "jobs")["items"]
    assert job["metadata"]["name"] in kept.stderr
    assert job["metadata"]["ownerReferences"][0]["kind"] == "RLTrainingRun"
    kubectl("delete", "rlruntime", name)
