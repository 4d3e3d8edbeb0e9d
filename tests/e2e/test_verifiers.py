"""Tasksets of verifiers, on a real kubelet: their image's catalog is read, a run of one trains, and wrong fields and
names are refused. The image is tests/e2e/tasksets.Dockerfile, on top of images/environment-verifiers.
"""

import json
from typing import Any

import pytest
import yaml
from tests.e2e.conftest import ROOT, Kubectl
from tests.e2e.test_own_environments import apply, run_of
from tests.e2e.test_sorting import finish

pytestmark = [
    pytest.mark.timeout(2400),
    pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments/adapters/verifiers", "images"),
]

RUNTIME = "tasksets"
CONFIG = {"max_token_length": 32, "total_steps": 20, "eval_items": 100}


@pytest.fixture(scope="module")
def verifiers_runtime(installed: Kubectl) -> str:
    """`tiny`, with environments from an image of their own."""
    tiny: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "runtime-tiny.yaml").read_text(encoding="utf-8"))
    tiny["metadata"]["name"] = RUNTIME
    tiny["spec"]["defaults"]["trainer"]["learning_rate"] = 1e-3  # a text to PyYAML, which reads YAML 1.1
    tiny["spec"] |= {"environmentImage": "environment-tasksets:dev", "imagePullPolicy": "Never"}
    installed("apply", "-f", "-", stdin=json.dumps(tiny))
    installed.patiently("wait", "--for=condition=Ready", f"rlrt/{RUNTIME}")
    return RUNTIME


def test_a_taskset_is_trained_with_its_own_fields(installed: Kubectl, namespace: str, verifiers_runtime: str) -> None:
    kubectl = installed
    listed = {each["name"] for each in kubectl.json("get", "rlrt", verifiers_runtime)["status"]["environments"]}
    assert {"sort_digits", "verifiers/NAME"} <= listed

    digits = {**CONFIG, "taskset": {"digits": 10}}
    apply(kubectl, namespace, run_of("wrong", "verifiers/sort-digits-vf", runtime=verifiers_runtime, config=digits))
    kubectl.patiently("-n", namespace, "wait", "--for=condition=Stalled", "rlrun/wrong")
    [refusal] = kubectl.json("-n", namespace, "get", "rlrun", "wrong")["status"]["refusals"]
    assert (refusal["field"], refusal["given"]) == ("spec.config.taskset.digits", 10)
    assert "at most 9" in refusal["hint"]

    digits = {**CONFIG, "taskset": {"digits": 4}}
    apply(kubectl, namespace, run_of("sorting", "verifiers/sort-digits-vf", runtime=verifiers_runtime, config=digits))
    status = finish(kubectl, namespace, "sorting")["status"]
    assert status["phase"] == "Succeeded", json.dumps(status, indent=2)
    metrics = status["metrics"]
    assert metrics["heldOut"]["low"] > metrics["baseline"]["high"], metrics
