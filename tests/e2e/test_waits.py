"""Runs that have to wait, on a real kubelet: for a backend, for a step at a stop, for CPU, or for a slot of a runtime
that another tenant has. Each ends well in its first attempt.
"""

import json
import re
from typing import Any

import pytest
from tests.e2e.conftest import EVERY_GROUP, ROOT, Kubectl, made_namespace
from tests.e2e.test_own_environments import apply, run_of
from tests.e2e.test_sorting import finish
from tests.e2e.test_unmet_needs import runtime, status_of, until_reason
from tests.integration.cluster.polling import wait_for

pytestmark = [
    pytest.mark.timeout(2400),
    pytest.mark.nightly(
        "tinker-atropos/src/tinker_atropos/trainer",
        "operator/src/rl_operator/status",
        "operator/src/rl_operator/cluster",
    ),
]

PROGRAM = ROOT / "tests" / "data" / "programs" / "moody_backend.py"
FREEZER = PROGRAM.with_name("freezer.py")
DEADLINE_SECONDS, PAUSE_SECONDS = 60, 70
FREEZE_SECONDS = 45
STEPS = 1000
LITTLE_CPU = {"trainer": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"cpu": "100m", "memory": "1Gi"}}}
CONFIG = {"group_size": 4, "batch_size": 8, **EVERY_GROUP}


def moody_backend(namespace: str) -> list[dict[str, Any]]:
    confined = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
    container = {
        "name": "moody",
        "image": "tinker-service:dev",
        "command": ["python", "/program/moody_backend.py"],
        "securityContext": confined,
        "volumeMounts": [{"name": "program", "mountPath": "/program"}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    spec = {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "program", "configMap": {"name": "moody"}}, {"name": "tmp", "emptyDir": {}}],
    }
    named = {"name": "moody", "namespace": namespace, "labels": {"app": "moody"}}
    service = {"selector": {"app": "moody"}, "ports": [{"port": 8005}]}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": {PROGRAM.name: PROGRAM.read_text()}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": named, "spec": service},
    ]


def with_backend(name: str) -> dict[str, Any]:
    document = runtime(name, resources=LITTLE_CPU, terminationGracePeriodSeconds=300)
    spec = document["spec"]
    spec["backend"] = spec["backend"] | {"url": "http://moody:8005"}
    spec["defaults"] = {"trainer": {"backend_deadline_seconds": DEADLINE_SECONDS}}
    return document


def freezer(name: str, run_uid: str) -> dict[str, Any]:
    """A pod in a namespace where pods may see and stop what runs on their node."""
    container = {
        "name": "freezer",
        "image": "tinker-service:dev",
        "command": ["python", "-c", FREEZER.read_text(), run_uid, str(FREEZE_SECONDS)],
        "securityContext": {"privileged": True, "runAsUser": 0},
    }
    named = {"name": name, "namespace": "default"}
    spec = {"hostPID": True, "restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": spec}


def test_a_backend_that_waits_fails_and_is_slow_and_a_freeze_cost_no_attempt(
    installed: Kubectl, namespace: str
) -> None:
    """The trainer has a tenth of a CPU."""
    kubectl, name = installed, f"moody-{namespace}"[:50]

    def is_now(mode: str) -> None:
        kubectl("-n", namespace, "exec", "moody", "--", "python", "-c", f"open('/tmp/mode', 'w').write({mode!r})")

    def until_training(reason: str) -> None:
        said = f"--for=jsonpath={{.status.conditions[?(@.type=='Ready')].reason}}={reason}"
        kubectl.patiently("-n", namespace, "wait", said, "rlrun/waits")

    def until_message(told: str) -> None:
        wait_for(repr(told), lambda: told in status_of(kubectl, namespace, "waits")["message"], seconds=120)

    apply(kubectl, namespace, with_backend(name), *moody_backend(namespace))
    kubectl.patiently("-n", namespace, "wait", "--for=condition=Ready", "pod/moody")
    try:
        is_now("full")
        apply(kubectl, namespace, run_of("waits", "sort_digits", runtime=name, config={"total_steps": STEPS, **CONFIG}))
        until_reason(kubectl, namespace, "waits", "BackendFull")
        assert "Maximum number of LoRA adapters" in status_of(kubectl, namespace, "waits")["message"]
        is_now("")
        until_training("Training")

        is_now("paused")
        until_training("BackendPaused")
        assert "short on capacity" in status_of(kubectl, namespace, "waits")["message"]
        # Longer than the backend may be silent.
        kubectl("-n", namespace, "exec", "moody", "--", "sleep", str(PAUSE_SECONDS), timeout=2 * PAUSE_SECONDS)
        until_training("BackendPaused")
        is_now("")
        until_training("Training")

        is_now("failing")
        until_message("HTTP 500: boom")
        is_now("")
        until_training("Training")

        run_uid = kubectl("-n", namespace, "get", "rlrun", "waits", "-o", "jsonpath={.metadata.uid}")
        apply(kubectl, "default", freezer(name, run_uid))
        kubectl.patiently("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}")
        until_message("did not run for 4")
        until_training("Training")

        is_now("slow")
        begun = "until [ -e /tmp/slow ]; do sleep 0.2; done"
        kubectl("-n", namespace, "exec", "moody", "--", "sh", "-c", begun, timeout=300)
        trainer = ("-n", namespace, "logs", status_of(kubectl, namespace, "waits")["podName"], "-c", "trainer")
        before = int(re.findall(rf"step (\d+)/{STEPS}", kubectl(*trainer))[-1])
        kubectl("-n", namespace, "patch", "rlrun", "waits", "--type=merge", "-p", '{"spec": {"suspend": true}}')
        last_words = kubectl(*trainer, "--follow", "--since=60s", "--timestamps", timeout=400)
        kubectl.patiently("-n", namespace, "wait", "--for=jsonpath={.status.phase}=Stopped", "rlrun/waits")
        status = status_of(kubectl, namespace, "waits")
        assert status.get("checkpoint", {}).get("step") == before + 1, f"the step in progress is lost: {last_words}"
        assert (status["attempt"], status.get("failedAttempts", 0)) == (1, 0)
    finally:
        kubectl("delete", "rlruntime", name)
        kubectl("delete", "pod", name, "--namespace=default", "--ignore-not-found", "--wait=false")


def test_a_tenant_without_quota_holds_up_no_other(installed: Kubectl, namespace: str) -> None:
    kubectl, name = installed, f"shared-{namespace}"[:50]
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    run = {"runtime": name, "config": {"total_steps": 8, **CONFIG}}
    document = runtime(name)
    document["spec"]["limits"] = {"maxActiveRuns": 1}
    with made_namespace(kubectl, f"{namespace}-b"[:63]) as poor:
        try:
            apply(kubectl, poor, document, quota, run_of("blocked", "sort_digits", **run))
            until_reason(kubectl, poor, "blocked", "CreationRefused")
            assert "exceeded quota" in status_of(kubectl, poor, "blocked")["message"]
            apply(kubectl, namespace, run_of("other", "sort_digits", **run))
            status = finish(kubectl, namespace, "other")["status"]
            assert (status["phase"], status["attempt"]) == ("Succeeded", 1), json.dumps(status)
            blocked = status_of(kubectl, poor, "blocked")
            assert blocked["queue"]["gaveBack"], json.dumps(blocked)
        finally:
            kubectl("-n", poor, "delete", "rlrun", "blocked", "--wait=false")
            kubectl("delete", "rlruntime", name)
