"""The charts in a real cluster: from nothing to trained weights, through an upgrade and back, and away again.

It installs and removes the kinds, so it wants a cluster to itself: RL_EMPTY_CLUSTER=1 says that KUBECONFIG's is one.
"""

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.e2e.conftest import EVERY_GROUP, PATIENCE_SECONDS, Kubectl
from tests.e2e.test_losses import a_run
from tests.integration.charts.helm import HOW_TO_GET, OPERATOR_CHART, RUNTIMES_CHART, Helm
from tests.integration.cluster.polling import wait_for

pytestmark = pytest.mark.timeout(2400)

NAMESPACE = "helm-e2e"
ENDLESS = 100_000
"""Steps of a run that is stopped: on no machine are they trained before that."""

KINDS = ("rltrainingruns.rl-operator.dev", "rlruntimes.rl-operator.dev", "rlenvironments.rl-operator.dev")
VALUES = ("--set=tinkerService.enabled=true", "--set=tools.enabled=true", "--set=tools.ui=true")
PATIENTLY = ("--namespace", NAMESPACE, "--wait", "--timeout", f"{PATIENCE_SECONDS}s")
HELM_SECONDS = PATIENCE_SECONDS + 60.0


@pytest.fixture
def empty_cluster(kubectl: Kubectl) -> Iterator[Kubectl]:
    """A cluster without anything of the project, and a namespace for a release. Nothing is left in it."""
    if os.environ.get("RL_EMPTY_CLUSTER") != "1":
        pytest.skip(
            "needs a cluster to itself, without anything of the project: RL_EMPTY_CLUSTER=1 says that it is one"
        )
    assert there(kubectl) == [], "these kinds are installed already: remove them, or use another cluster"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    yield kubectl
    if there(kubectl):  # the test failed halfway: delete runs while an operator can release their pods
        kubectl.patiently("-n", NAMESPACE, "delete", "rlruns", "--all", check=False)
        kubectl.patiently("delete", "crd", *KINDS, "--ignore-not-found")
    kubectl.patiently("delete", "namespace", NAMESPACE)


@pytest.fixture
def helm(empty_cluster: Kubectl, volumes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Helm]:
    if not Helm.there():
        pytest.skip(HOW_TO_GET)
    helm = Helm(tmp_path_factory.mktemp("helm"), os.environ["KUBECONFIG"])
    yield helm
    for release in json.loads(helm("list", "--namespace", NAMESPACE, "--output=json")):
        empty_cluster.patiently("-n", NAMESPACE, "delete", "rlruns", "--all", check=False)
        helm("uninstall", release["name"], *PATIENTLY, seconds=HELM_SECONDS)


def there(kubectl: Kubectl) -> list[str]:
    return kubectl("get", "crd", *KINDS, "--ignore-not-found", "-o", "name").split()


def test_from_nothing_to_nothing(empty_cluster: Kubectl, helm: Helm) -> None:
    kubectl = empty_cluster

    # From nothing. With --wait the second one waits until the operator has read the runtimes' image.
    helm("install", "rl-operator", OPERATOR_CHART, *VALUES, *PATIENTLY, seconds=HELM_SECONDS)
    helm("install", "rl-runtimes", RUNTIMES_CHART, *PATIENTLY, seconds=HELM_SECONDS)

    # `helm test` trains the small model.
    said = helm("test", "rl-runtimes", "--namespace", NAMESPACE, "--timeout=15m", "--logs", seconds=960)
    assert re.search(r"Phase:\s+Succeeded", said), said
    assert phase(kubectl, "rl-runtimes-test") == "Succeeded", said

    tokens = {role: token_of_one_who_may(kubectl, role) for role in ("view", "edit")}
    an_agent_uses_its_own_rights(kubectl, tokens)

    # An upgrade and a rollback, while a run continues in its first pod.
    run = a_run("undisturbed", config={"total_steps": ENDLESS, **EVERY_GROUP})
    kubectl("-n", NAMESPACE, "apply", "-f", "-", stdin=run)
    kubectl.patiently("-n", NAMESPACE, "wait", "--for=condition=Ready", "rlrun/undisturbed")
    pod = pod_of(kubectl, "undisturbed")
    change = ("--set=settings.logLevel=debug", "--set=tools.enabled=false")
    helm("upgrade", "rl-operator", OPERATOR_CHART, *VALUES, *change, *PATIENTLY, seconds=HELM_SECONDS)
    assert "--log-level=debug" in arguments(kubectl)
    helm("rollback", "rl-operator", "1", *PATIENTLY, seconds=HELM_SECONDS)
    assert "--log-level=debug" not in arguments(kubectl)
    assert pod_of(kubectl, "undisturbed") == pod
    seen = step(kubectl, "undisturbed")
    wait_for("the operator sees further steps", lambda: step(kubectl, "undisturbed") > seen, seconds=PATIENCE_SECONDS)
    people_look_at_a_run(kubectl, tokens, "undisturbed")
    status = stopped(kubectl, "undisturbed")
    assert [(each["attempt"], each["reason"]) for each in status["attempts"]] == [(1, "Stopped")]
    assert status["checkpoint"]["step"] > seen

    # The release is removed; kinds and runs stay until a release is told to remove them too.
    helm("uninstall", "rl-runtimes", *PATIENTLY, seconds=HELM_SECONDS)
    helm("uninstall", "rl-operator", *PATIENTLY, seconds=HELM_SECONDS)
    assert kubectl("-n", NAMESPACE, "get", "deployments", "-o", "name") == ""
    assert phase(kubectl, "undisturbed") == "Stopped"
    helm("install", "rl-operator", OPERATOR_CHART, "--set=crds.keep=false", *PATIENTLY, seconds=HELM_SECONDS)
    assert phase(kubectl, "undisturbed") == "Stopped"
    kubectl.patiently("-n", NAMESPACE, "delete", "rlruns", "--all")
    helm("uninstall", "rl-operator", *PATIENTLY, seconds=HELM_SECONDS)
    kubectl.patiently("wait", "--for=delete", *(f"crd/{kind}" for kind in KINDS))


def phase(kubectl: Kubectl, run: str) -> str:
    found: str = kubectl.json("-n", NAMESPACE, "get", "rlrun", run)["status"]["phase"]
    return found


def step(kubectl: Kubectl, run: str) -> int:
    status = kubectl.json("-n", NAMESPACE, "get", "rlrun", run)["status"]
    found: int = status.get("progress", {}).get("step", 0)
    return found


def pod_of(kubectl: Kubectl, run: str) -> tuple[int, str]:
    """The current attempt, and its pod's uid."""
    status = kubectl.json("-n", NAMESPACE, "get", "rlrun", run)["status"]
    pod = kubectl.json("-n", NAMESPACE, "get", "pod", status["podName"])
    return status["attempt"], pod["metadata"]["uid"]


def stopped(kubectl: Kubectl, run: str) -> dict[str, Any]:
    """The status of the run after it has been told to stop."""
    kubectl("-n", NAMESPACE, "patch", "rlrun", run, "--type=merge", "-p", '{"spec": {"suspend": true}}')
    kubectl.patiently("-n", NAMESPACE, "wait", "--for=condition=Suspended", f"rlrun/{run}")
    found: dict[str, Any] = kubectl.json("-n", NAMESPACE, "get", "rlrun", run)["status"]
    return found


def arguments(kubectl: Kubectl) -> list[str]:
    deployment = kubectl.json("-n", NAMESPACE, "get", "deployment", "rl-operator")
    found: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


# --- the tools gateway -----------------------------------------------------------------------------------------------
def an_agent_uses_its_own_rights(kubectl: Kubectl, tokens: dict[str, str]) -> None:
    """Through the gateway, whose ServiceAccount has none: `view` may read, `edit` may draft, others may not."""
    with forwarded(kubectl, "service/rl-operator-tools", 8080) as url:
        assert ask(f"{url}/environments")[0] == 401
        code, environments = ask(f"{url}/environments", tokens["view"])
        assert (code, "sort_digits" in {each["name"] for each in environments}) == (200, True), environments
        assert ask(f"{url}/environments/sort_digits/select", tokens["view"], {"runtime": "tiny"})[0] == 403
        code, draft = ask(f"{url}/environments/sort_digits/select", tokens["edit"], {"runtime": "tiny"})
        assert code == 200, draft
    assert kubectl.json("-n", NAMESPACE, "get", "rlrun", draft["run_id"])["spec"]["suspend"] is True


def people_look_at_a_run(kubectl: Kubectl, tokens: dict[str, str], run: str) -> None:
    """On the gateway's page while it trains: `edit` shows its curves and rollouts, `view` its history."""
    with forwarded(kubectl, "service/rl-operator-tools", 8080) as url:
        page = f"{url}/ui/runs/{NAMESPACE}/{run}"
        for token in tokens.values():
            code, shown = look(page, token)
            assert (code, f"rlctl sample {run} &#34;PROMPT&#34; -n {NAMESPACE}" in shown) == (200, True), shown
        code, points = ask(f"{page}/points", tokens["edit"])
        assert (code, points["note"], len(points["tables"]["steps"]["step"]) > 1) == (200, "", True), points
        newest = points["tables"]["steps"]["step"][-1]
        wait_for("another step is on its curves", lambda: more_steps(page, tokens["edit"], newest))
        code, step_1 = look(f"{page}/rollouts?step=1", tokens["edit"])
        assert (code, "the account balances" in step_1) == (200, True), step_1
        assert "the right to get pods/proxy" in ask(f"{page}/points", tokens["view"])[1]["note"]


def more_steps(page: str, token: str, newest: int) -> bool:
    return bool(ask(f"{page}/points?after={newest}&attempt=1", token)[1]["tables"]["steps"]["step"])


def token_of_one_who_may(kubectl: Kubectl, role: str) -> str:
    """A ServiceAccount with one of the cluster's own roles, which our kinds have been added to."""
    name = f"may-{role}"
    kubectl("-n", NAMESPACE, "create", "serviceaccount", name)
    account = f"--serviceaccount={NAMESPACE}:{name}"
    kubectl("-n", NAMESPACE, "create", "rolebinding", name, f"--clusterrole={role}", account)
    return kubectl("-n", NAMESPACE, "create", "token", name).strip()


@contextmanager
def forwarded(kubectl: Kubectl, what: str, port: int) -> Iterator[str]:
    """The address here of a Service there."""
    command = [kubectl.program, "-n", NAMESPACE, "port-forward", what, f":{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            said = process.stdout.readline()
            found = re.match(r"Forwarding from (127\.0\.0\.1:\d+)", said)
            assert found, f"{' '.join(command)} says {said!r}"
            yield f"http://{found[1]}"
        finally:
            process.terminate()


def ask(url: str, token: str = "", body: dict[str, str] | None = None) -> tuple[int, Any]:
    """GET, or POST if there is a body: code and answer."""
    code, text = look(url, token, None if body is None else json.dumps(body).encode())
    return code, json.loads(text)


def look(url: str, token: str, body: bytes | None = None) -> tuple[int, str]:
    """The same as text."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
