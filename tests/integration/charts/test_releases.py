"""Releases on a real API server: in which order things come and go, and that the operator can live on its rights."""

import json
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.charts.helm import OPERATOR_CHART, RUNTIMES_CHART, Helm, HelmError, flags
from tests.integration.cluster.admin import RUNTIMES, AdminClient
from tests.integration.cluster.control_plane import ADMIN_TOKEN, DEFINITIONS, ControlPlane, installed_definitions
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.policies import PATHS, policy_documents, until_refused
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import RunsNamespace

OPS = "ops"
REFUSAL = re.compile(r'cannot (\w+) resource "([^"]+)" in API group "[^"]*"(?: in the namespace "([^"]+)")?')
EVENTS_OF_RUNTIMES = ("create", "events", "default")
"""Events about what belongs to the whole cluster are kept there; the same words are in the runtime's status."""

DEPLOYMENT = f"/apis/apps/v1/namespaces/{OPS}/deployments/rl-operator"
SETTINGS: dict[str, Any] = {"settings": {"pollSeconds": 0.2, "progressSeconds": 0.5, "backoffSeconds": 0.3}}
LOCKED = {
    "apiVersion": "rl-operator.dev/v1alpha1",
    "kind": "RLTrainingRun",
    "metadata": {"name": "locked"},
    "spec": {"environment": "sort_digits", "runtime": "tiny", "config": {"tokenizer_name": "gpt2"}},
}


@pytest.fixture
def tidied_plane(empty_plane: ControlPlane, admins_helm: Helm) -> Iterator[ControlPlane]:
    """Whatever a test leaves is taken away."""
    yield empty_plane
    for release in json.loads(admins_helm("list", "--namespace", OPS, "--output", "json")):
        admins_helm("uninstall", release["name"], "--namespace", OPS)
    if kinds(empty_plane.admin):
        empty_plane.remove_definitions()


def install(helm: Helm, chart: Path, values: dict[str, Any], release: str = "") -> None:
    """Install the release, or bring it to these values."""
    where = ("--namespace", OPS, "--reset-values")
    helm("upgrade", "--install", release or chart.name, chart, *where, *flags(values))


def install_runtimes(plane: ControlPlane, helm: Helm) -> None:
    """Once the kind is served; where there are kubelets, `--wait` on the operator's chart is later than that."""
    wait_for("RLRuntimes are served", lambda: plane.serves(RUNTIMES))
    install(helm, RUNTIMES_CHART, {})


def kinds(admin: AdminClient) -> set[str]:
    return {each["metadata"]["name"] for each in admin.items(DEFINITIONS)}


def policies(admin: AdminClient) -> list[dict[str, Any]]:
    found = [admin.find(f"{PATHS[each['kind']]}/{each['metadata']['name']}") for each in policy_documents()]
    return [each for each in found if each]


OUR_KINDS = {each["metadata"]["name"] for each in installed_definitions()}


def test_from_nothing_to_nothing(tidied_plane: ControlPlane, admins_helm: Helm) -> None:
    """The kinds and their runs stay unless they are told to go; a release of the same name takes them up again."""
    helm, admin = admins_helm, tidied_plane.admin
    install(helm, OPERATOR_CHART, {})
    assert kinds(admin) == OUR_KINDS
    install_runtimes(tidied_plane, helm)
    before = int(admin.get(DEPLOYMENT)["metadata"]["resourceVersion"])
    assert [int(each["metadata"]["resourceVersion"]) > before for each in policies(admin)] == [True] * 4
    until_refused(admin, "default", LOCKED, "runtime 'tiny' locks it")
    assert {each["metadata"]["name"] for each in admin.items(RUNTIMES)} == {"default", "tiny"}
    runs = RunsNamespace(tidied_plane, "team")
    uid = runs.apply()["metadata"]["uid"]

    helm("uninstall", "rl-runtimes", "--namespace", OPS)
    helm("uninstall", "rl-operator", "--namespace", OPS)
    assert (kinds(admin), policies(admin), admin.find(DEPLOYMENT)) == (OUR_KINDS, [], None)
    assert admin.items(RUNTIMES) == []
    assert runs.find()["metadata"]["uid"] == uid

    install(helm, OPERATOR_CHART, {"crds.keep": False})
    assert runs.find()["metadata"]["uid"] == uid
    helm("uninstall", "rl-operator", "--namespace", OPS)
    wait_for("the kinds are gone", lambda: not kinds(admin))


def test_a_second_release_names_objects_of_the_first(tidied_plane: ControlPlane, admins_helm: Helm) -> None:
    install(admins_helm, OPERATOR_CHART, {"scope.namespaces": ["team"]})
    with pytest.raises(HelmError, match="invalid ownership metadata"):
        install(admins_helm, OPERATOR_CHART, {"scope.namespaces": ["default"]}, "rl-operator-2")
    shared = {"crds.enabled": False, "policies.enabled": False, "aggregateRoles.enabled": False}
    install(admins_helm, OPERATOR_CHART, {**shared, "scope.namespaces": ["default"]}, "rl-operator-2")


@pytest.mark.nightly("charts", "operator/src/rl_operator/cluster")
def test_the_operator_works_with_its_rights_in_one_namespace_and_then_in_all(
    tidied_plane: ControlPlane, admins_helm: Helm, tmp_path: Path
) -> None:
    """A run's whole life, with the Deployment's arguments and the ServiceAccount's rights."""
    helm, team, elsewhere = admins_helm, RunsNamespace(tidied_plane, "team"), RunsNamespace(tidied_plane, "default")
    install(helm, OPERATOR_CHART, {**SETTINGS, "scope.namespaces": ["team"]})
    install(helm, RUNTIMES_CHART, {})
    elsewhere.apply("other")
    with installed_operator(tidied_plane, tmp_path, refused={EVENTS_OF_RUNTIMES}):
        a_life(team)
        assert elsewhere.status("other").get("observedGeneration") == -1

    install(helm, OPERATOR_CHART, SETTINGS)
    with installed_operator(tidied_plane, tmp_path):
        a_life(team)
        elsewhere.until_pod(name="other")


@contextmanager
def installed_operator(
    plane: ControlPlane, folder: Path, *, refused: AbstractSet[tuple[str, ...]] = frozenset()
) -> Iterator[None]:
    """The Deployment's container, as a process here. Its ServiceAccount's token is made as the kubelet has it made.

    Fails when the API server refuses it a right; `refused` may be: verb, resource, namespace.
    """
    admin = plane.admin
    (container,) = admin.get(DEPLOYMENT)["spec"]["template"]["spec"]["containers"]
    token = admin.post(f"/api/v1/namespaces/{OPS}/serviceaccounts/rl-operator/token", {"spec": {}})["status"]["token"]
    kubeconfig = json.loads(plane.kubeconfig(ADMIN_TOKEN).read_text(encoding="utf-8"))
    kubeconfig["users"][0]["user"] = {"token": token}
    file = folder / "kubeconfig"
    file.write_text(json.dumps(kubeconfig), encoding="utf-8")
    logged = ("--log-format", "text", "--log-level", "debug")
    process = OperatorProcess(file, *container["args"], "--operator-namespace", OPS, *logged)
    try:
        process.start()
        yield
        assert process.stop() == 0
        assert set(REFUSAL.findall(process.log)) <= refused, process.log
    finally:
        process.close()


def a_life(runs: RunsNamespace) -> None:
    runs.apply()
    runs.succeed(runs.until_pod())
    runs.edit(ttlSecondsAfterFinished=0)
    wait_for("the run has expired", lambda: runs.find() is None)
