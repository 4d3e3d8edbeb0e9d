"""Rollouts on a real cluster: read by a user with the role `edit` while the trainer runs, and from a
PersistentVolumeClaim once its pod is gone; and by nobody else, behind real NetworkPolicies.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import EVERY_GROUP, PATIENCE_SECONDS, ROOT, SHARED, Kubectl
from tests.e2e.test_sorting import finish

from rl_operator.documents.parse import load_documents

pytestmark = pytest.mark.timeout(2400)

STEPS = 300
"""Its ports are asked meanwhile, which takes a closed one half a minute."""

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


@dataclass
class Researcher:
    """Has the role `edit` in a namespace, and no other."""

    namespace: str
    kubeconfig: Path

    def rollouts(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [Path(sys.executable).with_name("rlctl"), "rollouts", "kept", "-n", self.namespace, *arguments]
        env_vars = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, env=env_vars
        )

    def until_read(self, *arguments: str) -> str:
        """Once the trainer has trained that step."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (done := self.rollouts(*arguments)).returncode:
            assert time.monotonic() < deadline, done.stderr
            time.sleep(0.5)
        return done.stdout


@pytest.fixture
def researcher(installed: Kubectl, namespace: str, tmp_path: Path) -> Researcher:
    installed("-n", namespace, "create", "serviceaccount", "researcher")
    subject = f"--serviceaccount={namespace}:researcher"
    installed("-n", namespace, "create", "rolebinding", "researcher", "--clusterrole=edit", subject)
    config = installed.json("config", "view", "--raw", "--minify")
    token = installed("-n", namespace, "create", "token", "researcher").strip()
    config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config), encoding="utf-8")
    return Researcher(namespace, file)


ASK = """
import concurrent.futures, json, sys, urllib.error, urllib.request
def ask(url):
    try:
        return urllib.request.urlopen(url, timeout=15).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
urls = sys.argv[2:]
with concurrent.futures.ThreadPoolExecutor(len(urls)) as pool:
    answers = pool.map(ask, ["http://" + sys.argv[1] + url for url in urls])
    print(json.dumps(dict(zip(urls, answers))))
"""
"""Prints the status code of each answer; 0: there was none."""

METRICS = {":8002/metrics": 200, ":8003/metrics": 200, ":8004/metrics": 200}
OF_THE_RUN = {
    **dict.fromkeys([":8002/rollouts", ":8002/rollouts/000001-1.jsonl.zst", ":8002/history", ":8002/status"], 401),
    **dict.fromkeys([":8003/status", ":8004/status"], 403),
}
NAMED_PEER = "kube-system"
"""Which may connect unless the platform says otherwise."""


def bystander(kubectl: Kubectl, namespace: str) -> None:
    """A pod that asks others."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    command = ["python", "-c", "import signal; signal.sigwait([signal.SIGTERM])"]
    container = {"name": "ask", "image": "tinker-atropos:dev", "command": command, "securityContext": security}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bystander", "namespace": namespace}, "spec": spec}
    kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    kubectl.patiently("-n", namespace, "wait", "--for=condition=Ready", "pod/bystander")


@pytest.fixture
def bystanders(installed: Kubectl, namespace: str) -> Iterator[dict[str, tuple[str, ...]]]:
    """Where `kubectl exec` finds a pod of the run's namespace, of another one, and of one that the platform names."""
    for each in (namespace, NAMED_PEER):
        bystander(installed, each)
    yield {
        "same namespace": ("-n", namespace, "bystander"),
        "another namespace": ("-n", SHARED, "deploy/tinker-service"),
        "named": ("-n", NAMED_PEER, "bystander"),
    }
    installed("-n", NAMED_PEER, "delete", "pod", "bystander", "--wait=false")


def answers_to(kubectl: Kubectl, where: tuple[str, ...], address: str, urls: Iterable[str]) -> dict[str, int]:
    answer = kubectl("exec", *where, "--", "python", "-c", ASK, address, *urls, timeout=PATIENCE_SECONDS)
    said: dict[str, int] = json.loads(answer)
    return said


def test_rollouts_outlive_their_pod_and_are_for_who_may_read_them(
    installed: Kubectl, namespace: str, researcher: Researcher, bystanders: dict[str, tuple[str, ...]]
) -> None:
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
    live = researcher.until_read("--step", "1", "-o", "jsonl")
    assert {"step", "group"} <= {json.loads(line)["record"] for line in live.splitlines()}

    # Its ops ports let nobody in whom the platform does not name, and then show figures only.
    pod = kubectl.json("-n", namespace, "get", "rlrun", "kept")["status"]["podName"]
    address = kubectl.json("-n", namespace, "get", "pod", pod)["status"]["podIP"]
    everything = METRICS | OF_THE_RUN
    assert answers_to(kubectl, bystanders["named"], address, everything) == everything
    for stranger in ("same namespace", "another namespace"):
        assert answers_to(kubectl, bystanders[stranger], address, everything) == dict.fromkeys(everything, 0), stranger
    status = finish(kubectl, namespace, "kept")["status"]
    assert status["phase"] == "Succeeded", json.dumps(status, indent=2)

    # The pod is gone; a Job reads the claim, and then another reader uses it.
    kubectl.patiently("-n", namespace, "delete", "pod", status["podName"])
    kept = researcher.rollouts("--step", "1", "-o", "jsonl")
    assert kept.returncode == 0, kept.stderr
    assert set(live.splitlines()) <= set(kept.stdout.splitlines())
    last = json.loads(researcher.rollouts("--step", str(STEPS), "-o", "json").stdout)
    assert last, "the last step is there, too"
    [job] = kubectl.json("-n", namespace, "get", "jobs")["items"]
    assert job["metadata"]["name"] in kept.stderr
    assert job["metadata"]["ownerReferences"][0]["kind"] == "RLTrainingRun"

    # That Job's pod is as closed.
    selector = f"batch.kubernetes.io/job-name={job['metadata']['name']}"
    [reader] = kubectl.json("-n", namespace, "get", "pods", "-l", selector)["items"]
    kept_ones = [url for url in OF_THE_RUN if url.startswith(":8002/rollouts")]
    for stranger in ("same namespace", "another namespace"):
        found = answers_to(kubectl, bystanders[stranger], reader["status"]["podIP"], kept_ones)
        assert found == dict.fromkeys(kept_ones, 0), stranger
    found = answers_to(kubectl, bystanders["named"], reader["status"]["podIP"], kept_ones)
    assert found == dict.fromkeys(kept_ones, 401)
    kubectl("delete", "rlruntime", name)
