"""A real cluster with the project installed by hand, as the README does it: CRDs, operator, runtimes, service."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cluster.polling import wait_for

ROOT = Path(__file__).resolve().parents[2]
HINT = (
    "needs a cluster: set KUBECONFIG to one that has the images rl-operator:dev, tinker-atropos:dev and "
    "tinker-service:dev (make images, then e.g. kind load docker-image), and have kubectl on PATH; test_verifiers.py "
    "needs tests/e2e/tasksets.Dockerfile as environment-tasksets:dev, too"
)


ENV = "          env:\n"
SOON = (
    '            - {name: RL_OPERATOR_POLL_SECONDS, value: "5"}\n'
    '            - {name: RL_OPERATOR_PROGRESS_SECONDS, value: "5"}\n'
)
"""Trainers are asked often enough that also a run of seconds has been heard from before it ends."""


PATIENCE_SECONDS = 1200
"""Only ends a hang: what is waited for may share two processors with three other tests, on a machine that is slow."""


EVERY_GROUP = {"ensure_scores_are_not_same": False, "eval_items": 16}
"""Config of runs that have to be there for a while, whatever they learn. Once the model sorts all digits, most groups
have equal scores: they count, or the last steps would take minutes each. What they learn is judged by few items.
"""


class Kubectl:
    """The command, with its output read; with a kubeconfig as the user of that one."""

    def __init__(self, program: str, kubeconfig: Path | None = None) -> None:
        self.program = program
        self.env_vars = {**os.environ, "KUBECONFIG": str(kubeconfig)} if kubeconfig else dict(os.environ)

    def __call__(self, *arguments: str, stdin: str | None = None, timeout: float = 60, check: bool = True) -> str:
        done = subprocess.run(
            [self.program, *arguments],
            input=stdin,
            env=self.env_vars,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            pytest.fail(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def patiently(self, *arguments: str, check: bool = True) -> str:
        """A call that waits: for a condition, a rollout or a deletion."""
        return self(*arguments, f"--timeout={PATIENCE_SECONDS}s", timeout=PATIENCE_SECONDS + 30, check=check)

    def json(self, *arguments: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self(*arguments, "-o", "json"))
        return document


@pytest.fixture(scope="session")
def kubectl(cluster: None) -> Kubectl:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    program = shutil.which("kubectl", path=f"{assets}{os.pathsep}{os.environ['PATH']}")
    if not os.environ.get("KUBECONFIG") or program is None:
        pytest.skip(HINT)
    return Kubectl(program)


@pytest.fixture(scope="session")
def installed(kubectl: Kubectl) -> Kubectl:
    """The operator runs and the kinds are known."""
    kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    kubectl.patiently("wait", "--for=condition=Established", "crd", "--all")
    operator = (ROOT / "examples" / "operator.yaml").read_text(encoding="utf-8")
    assert operator.count(ENV) == 1
    kubectl("apply", "-f", "-", stdin=operator.replace(ENV, ENV + SOON))
    for example in ("runtime-default", "runtime-tiny"):
        kubectl("apply", "-f", str(ROOT / "examples" / f"{example}.yaml"))
    kubectl.patiently("-n", "rl-operator", "rollout", "status", "deployment/rl-operator")
    return kubectl


@pytest.fixture(scope="session")
def volumes(kubectl: Kubectl) -> Iterator[None]:
    """Room for every Tinker service's claim: folders of a node, if the cluster has no StorageClass of its own."""
    if kubectl("get", "storageclasses", "-o", "name"):
        yield
        return
    kubectl("apply", "-f", "-", stdin=json.dumps(_folders_pod()))
    kubectl.patiently("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{FOLDERS}")
    node = kubectl.json("get", "pod", FOLDERS)["spec"]["nodeName"]
    kubectl("delete", "pod", FOLDERS)
    items = [_volume(number, node) for number in range(VOLUMES)]
    kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    yield
    kubectl.patiently("delete", "persistentvolumes", "-l", f"{FOLDERS}=", check=False)


VOLUMES = 64
"""More than tests that have a namespace or a release of their own, each run twice: none is used again."""

FOLDERS = "rl-e2e-volumes"


def _folders_pod() -> dict[str, Any]:
    """Makes empty folders on a node that any user may write to, as a provisioner would."""
    script = f"cd /volumes; rm -rf ./*; mkdir $(seq 0 {VOLUMES - 1}); chmod 777 ./*"
    container = {
        "name": "make",
        "image": "tinker-service:dev",
        "command": ["sh", "-c", script],
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": "volumes", "mountPath": "/volumes"}],
    }
    folder = {"path": f"/var/tmp/{FOLDERS}", "type": "DirectoryOrCreate"}
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [{"name": "volumes", "hostPath": folder}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": FOLDERS, "namespace": "default"}, "spec": spec}


def _volume(number: int, node: str) -> dict[str, Any]:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{FOLDERS}-{number}", "labels": {FOLDERS: ""}},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": f"/var/tmp/{FOLDERS}/{number}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
    }


@pytest.fixture(scope="session")
def namespaces(installed: Kubectl, volumes: None) -> Iterator[None]:
    """Whose deletion no test waits for: at the end, all are gone."""
    yield
    installed.patiently("wait", "--for=delete", "namespace", "-l", f"{OWNER}=")


OWNER = "rl-e2e"
TINKER_SERVICE = ROOT / "examples" / "tinker-service.yaml"
SHARED = "e2e-tinker-service"
"""The namespace whose Tinker service most tests use."""


@contextmanager
def made_namespace(kubectl: Kubectl, name: str) -> Iterator[str]:
    """With PodSecurity `restricted` enforced."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted", OWNER: ""}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    kubectl.patiently("wait", "--for=delete", f"namespace/{name}")  # of a first try
    kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    try:
        yield name
    finally:
        kubectl("delete", "namespace", name, "--wait=false")


def install_service(kubectl: Kubectl, namespace: str) -> None:
    """A Tinker service, as README installs it. It asks for less CPU: those of two tests fit onto a small node."""
    manifest = TINKER_SERVICE.read_text(encoding="utf-8")
    assert manifest.count(MUCH) == 1
    kubectl("-n", namespace, "apply", "-f", "-", stdin=manifest.replace(MUCH, "cpu: 100m"))
    kubectl.patiently("-n", namespace, "rollout", "status", "deployment/tinker-service")


MUCH = "cpu: 500m"


@pytest.fixture(scope="session")
def shared_service(installed: Kubectl, namespaces: None) -> Iterator[list[dict[str, Any]]]:
    """What a namespace needs to use the session's Tinker service: its key, and a name that leads to it."""
    with made_namespace(installed, SHARED):
        install_service(installed, SHARED)
        secret = installed.json("-n", SHARED, "get", "secret", "tinker-service")
        name = {"name": "tinker-service"}
        there = {"type": "ExternalName", "externalName": f"tinker-service.{SHARED}.svc.cluster.local"}
        yield [
            {"apiVersion": "v1", "kind": "Secret", "metadata": name, "data": secret["data"]},
            {"apiVersion": "v1", "kind": "Service", "metadata": name, "spec": there},
        ]


@pytest.fixture
def empty_namespace(installed: Kubectl, namespaces: None, request: pytest.FixtureRequest) -> Iterator[str]:
    test = request.node.name.removeprefix("test_").replace("_", "-")
    with made_namespace(installed, f"e2e-{test[:40].rstrip('-')}") as name:
        yield name


@pytest.fixture
def namespace(installed: Kubectl, empty_namespace: str, shared_service: list[dict[str, Any]]) -> str:
    """A namespace of the test's own, in which runs find a Tinker service."""
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": shared_service})
    installed("-n", empty_namespace, "apply", "-f", "-", stdin=manifest)
    return empty_namespace


EDITOR = "editor"


@pytest.fixture
def editor(installed: Kubectl, empty_namespace: str, tmp_path: Path) -> Kubectl:
    """A user with Kubernetes' role `edit` in the namespace, as README's walk takes it, and no other right."""
    admin, account = installed, f"{empty_namespace}:{EDITOR}"
    admin("-n", empty_namespace, "create", "serviceaccount", EDITOR)
    admin("-n", empty_namespace, "create", "rolebinding", EDITOR, "--clusterrole=edit", f"--serviceaccount={account}")
    config = json.loads(admin("config", "view", "--raw", "--minify", "-o", "json"))
    token = admin("-n", empty_namespace, "create", "token", EDITOR, "--duration=2h").strip()
    config["users"] = [{"name": EDITOR, "user": {"token": token}}]
    config["contexts"][0]["context"] |= {"user": EDITOR, "namespace": empty_namespace}
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config), encoding="utf-8")
    user = Kubectl(admin.program, path)

    def may() -> bool:
        return user("auth", "can-i", "create", "rltrainingruns", check=False).strip() == "yes"

    wait_for("Kubernetes has added our kinds to its role edit", may, seconds=60)
    assert user("auth", "can-i", "create", "rltrainingruns", "-n", "default", check=False).strip() == "no"
    return user


@pytest.fixture
def namespace_with_service(installed: Kubectl, empty_namespace: str) -> str:
    """For tests of the service itself, or of the walls between it and its neighbors."""
    install_service(installed, empty_namespace)
    return empty_namespace
