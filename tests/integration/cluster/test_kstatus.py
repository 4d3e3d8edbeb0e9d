"""How Flux and Argo CD judge the kinds that the platform and its users apply, by Flux's own library."""

import json
import subprocess
from typing import Any

import pytest
from tests.integration.cluster.admin import ENVIRONMENTS, RUNTIMES
from tests.integration.cluster.control_plane import find_program
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import RunsNamespace, install_runtime
from tests.integration.cluster.test_environments import BROKEN, GOOD
from tests.integration.cluster.written_environments import OwnEnvironments

pytestmark = pytest.mark.skipif(not find_program("kstatus"), reason="needs kstatus beside kube-apiserver")


def verdict(document: dict[str, Any]) -> str:
    """Current, InProgress, Failed or Terminating."""
    program = find_program("kstatus")
    assert program
    done = subprocess.run([program], input=json.dumps(document), capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()[1]


def until(runs: RunsNamespace, path: str, expected: str) -> None:
    wait_for(f"{path} is {expected}", lambda: verdict(runs.admin.get(path)) == expected)


KIND = {"apiVersion": "rl-operator.dev/v1alpha1", "kind": "RLEnvironment", "metadata": {"name": "new"}}


def test_an_environment(runs: RunsNamespace, own: OwnEnvironments) -> None:
    path = ENVIRONMENTS.format(namespace=runs.namespace)
    new = runs.admin.post(f"{path}?dryRun=All", {**KIND, "spec": {"source": {"configMap": {"name": "code"}}}})
    assert verdict(new) == "InProgress", "nobody has looked at it yet"
    own.write("code", env=BROKEN)
    own.apply("code")
    until(runs, f"{path}/code", "Failed")
    own.write("code", env=GOOD)
    until(runs, f"{path}/code", "Current")
    own.apply("image", image={"reference": f"registry.test/{runs.namespace}:1", "entry": "maze"})
    own.until("image", "Reconciling", "Discovering")
    until(runs, f"{path}/image", "InProgress")


def test_a_runtime(runs: RunsNamespace) -> None:
    until(runs, f"{RUNTIMES}/tiny", "Current")
    name = f"kstatus-{runs.namespace}"
    install_runtime(runs.admin, "tiny", name, locked={"trainer": {"lora_rnk": 8}})
    until(runs, f"{RUNTIMES}/{name}", "Failed")
    runs.admin.patch(f"{RUNTIMES}/{name}", {"spec": {"locked": None}})
    until(runs, f"{RUNTIMES}/{name}", "Current")
    runs.admin.delete(f"{RUNTIMES}/{name}")
