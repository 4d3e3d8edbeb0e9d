"""The pages' way into a cluster, typed as it stands there: from an API server that knows nothing to a finished run."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.documented import ROOT, Command, commands_of
from tests.integration.cluster.admin import AdminClient
from tests.integration.cluster.control_plane import ADMIN_TOKEN, API_SERVER, ControlPlane, find_program
from tests.integration.cluster.kubelet import End, FakeKubelet, result
from tests.integration.cluster.operator_process import FAST, OperatorProcess
from tests.integration.cluster.polling import wait_for
from tests.integration.conftest import running_control_plane

from rl_operator.api.names import RUN_LABEL

NAMESPACE = "rl-operator"
ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/rl-operator/token"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
STEPS = 40  # of examples/sorting-cluster.yaml

README = commands_of("README.md", after="## On a cluster", before="## How it works")
INSTALL = commands_of("docs/how-to/install.md", after="## With kubectl", before="## Train on Tinker")
TUTORIAL = [
    command
    for command in commands_of("docs/tutorial/cluster.md")
    if command.text.split()[0] in ("kubectl", "rlctl") and "create namespace" not in command.text
]
"""What the tutorial installs with Helm is here already; tests/integration/charts tries the charts."""

OPERATE = commands_of("docs/how-to/operate.md")
OWN = commands_of(
    "docs/how-to/own-environments.md", after="## Bring it to a cluster", before="## Run several environment processes"
)
Shell = Callable[..., str]


@pytest.fixture(scope="module")
def bare_plane(apiserver: None) -> Iterator[ControlPlane]:
    """One of its own: here a page installs the kinds, the policies and the rights."""
    with running_control_plane(API_SERVER, empty=True) as plane:
        yield plane


@pytest.fixture(scope="module")
def shell(bare_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Runs a command as a user at the root of the repository does, and gives what it printed."""
    kubectl = find_program("kubectl")
    if kubectl is None:
        pytest.skip("needs kubectl on PATH, or beside kube-apiserver")
    path = os.pathsep.join([str(Path(sys.executable).parent), str(Path(kubectl).parent), os.environ["PATH"]])
    home = str(tmp_path_factory.mktemp("home"))
    env_vars = {**os.environ, "PATH": path, "KUBECONFIG": str(bare_plane.kubeconfig(ADMIN_TOKEN)), "HOME": home}

    def run(command: Command, folder: str = ".") -> str:
        text = command.text.replace("NAME", "sorting")
        if text.endswith(" -w"):  # it never ends: what it prints first is looked at
            text = text.removesuffix(" -w")
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=ROOT / folder,
            env=env_vars,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"
        return done.stdout

    return run


@contextmanager
def operator_of_the_page(plane: ControlPlane) -> Iterator[OperatorProcess]:
    """With the rights that examples/operator.yaml has just given to its service account."""
    token = plane.admin.post(ACCOUNT, {"spec": {"audiences": []}})["status"]["token"]
    operator = OperatorProcess(plane.kubeconfig(token), *FAST)
    try:
        operator.start()
        yield operator
    finally:
        print(operator.log[-6000:])  # shown with a failure
        operator.close()


@contextmanager
def kubelets(plane: ControlPlane) -> Iterator[None]:
    """Play the pod of every run to its success, and the controller of Deployments."""
    over = threading.Event()
    admin = AdminClient("127.0.0.1", plane.port, ADMIN_TOKEN)  # a connection serves one thread

    def play() -> None:
        while not over.wait(0.1):
            for pod in admin.items("/api/v1/pods", labelSelector=RUN_LABEL):
                _play_on(FakeKubelet(admin, pod["metadata"]["namespace"]), pod)
            for deployment in admin.items(DEPLOYMENTS):
                _roll_out(admin, deployment)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)
        admin.close()


def _play_on(kubelet: FakeKubelet, pod: dict[str, dict[str, str]]) -> None:
    name, phase = pod["metadata"]["name"], pod["status"].get("phase", "Pending")
    if phase == "Pending":
        kubelet.start(name)
        kubelet.work(name)
    elif phase == "Running":
        message = result("succeeded", steps=STEPS, total=STEPS, metrics={"heldOut": {"value": 0.974}})
        kubelet.end(name, "Succeeded", trainer=End(0, message))


def _roll_out(admin: AdminClient, deployment: dict[str, dict[str, int]]) -> None:
    replicas, generation = deployment["spec"]["replicas"], deployment["metadata"]["generation"]
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas)
    if deployment.get("status", {}).get("observedGeneration") != generation:
        path = f"{DEPLOYMENTS}/{deployment['metadata']['name']}/status"
        admin.patch(path, {"status": {**counts, "observedGeneration": generation}})


def test_the_pages_lead_from_nothing_to_a_trained_model(bare_plane: ControlPlane, shell: Shell) -> None:
    """README in the namespace default; then the guide again over it, and the tutorial's run in rl-operator."""
    installing = README[: next(number for number, each in enumerate(README) if "sorting-cluster" in each.text)]
    for command in (*installing, *INSTALL[:-2]):
        shell(command)
    with operator_of_the_page(bare_plane), kubelets(bare_plane):
        for command in (*INSTALL[-2:], *README[len(installing) :]):
            printed = shell(command)
        assert printed == f"tinker://m/sampler_weights/{STEPS:06d}"
        wait_for("both runtimes' columns are there", lambda: "True" in shell(TUTORIAL[0]))
        told = {command.text: shell(command) for command in TUTORIAL}
        assert "trained sort_digits for 40 steps" in told["rlctl results sorting -n rl-operator"]
        for command in OPERATE:
            if not command.text.startswith("rlctl logs"):  # needs a kubelet that serves logs: test_rlctl.py
                shell(command)
        for command in OWN:
            shell(command, folder="examples/own-environment")


def test_what_the_pages_print_has_these_columns(bare_plane: ControlPlane) -> None:
    """The table of `kubectl get rlruns` on the pages is the one that the CRD asks for."""
    for page in ("README.md", "docs/tutorial/cluster.md"):
        [shown] = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("NAME      PHASE")]
        definition = bare_plane.admin.get(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rltrainingruns.rl-operator.dev"
        )
        columns = definition["spec"]["versions"][0]["additionalPrinterColumns"]
        assert shown.split() == ["NAME", *(each["name"].upper() for each in columns if not each.get("priority"))]
