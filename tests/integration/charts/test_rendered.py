"""A table of values, each rendered and accepted by the real API server: every object in a strict dry run."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.integration.charts.helm import OPERATOR_CHART, RUNTIMES_CHART, Document, Helm, of_kind
from tests.integration.cluster.admin import AdminClient
from tests.integration.cluster.control_plane import DEFINITIONS, ControlPlane
from tests.integration.cluster.polling import wait_for

DIGEST = f"sha256:{'0' * 64}"
PEERS = [{"namespaceSelector": {"matchLabels": {"team": "a"}}, "podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}]
WITH_KINDS = {"crds.enabled": True, "policies.enabled": True}
"""Rows without it are about the rest: they leave the kinds and the policies out."""

ALL_ON = {"tools.enabled": True, "tinkerService.enabled": True, "metrics.serviceMonitor.enabled": True}
TABLE: dict[str, dict[str, Any]] = {
    "as it is": WITH_KINDS,
    "one replica": {"replicas": 1},
    "one eviction at a time": {"podDisruptionBudget.enabled": True},
    "one namespace": {"scope.namespaces": ["team"], **ALL_ON},
    "only the operator": {
        "aggregateRoles.enabled": False,
        "authenticatedReaders.enabled": False,
        "metrics.service.enabled": False,
    },
    "kinds that go": {**WITH_KINDS, "crds.keep": False},
    "kinds without policies": {"crds.enabled": True},
    "images of a mirror": {
        "image": {"repository": "r.example:5000/rl/operator", "digest": DIGEST, "pullPolicy": "Always"},
        "tinkerService.image.repository": "r.example:5000/rl/tinker-service",
        "imagePullSecrets": [{"name": "mirror"}],
        **ALL_ON,
    },
    "settings": {"settings": {"workers": 40, "pollSeconds": 7.5, "bundledImage": "r.example/t:1", "logFormat": "text"}},
    "a W&B key": {"wandb": {"secretName": "wandb", "key": "key"}},
    "resources": {"resources": {"requests": {"cpu": 1, "memory": "0.25Gi"}, "limits": {"ephemeral-storage": "1G"}}},
    "placement": {
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "pool", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}]}},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "priorityClassName": "system-cluster-critical",
        **ALL_ON,
    },
    "marked": {
        "podAnnotations": {"sidecar.istio.io/inject": "false"},
        "podLabels": {"team": "platform"},
        "serviceAccount.annotations": {"example.com/role": "rl"},
        **ALL_ON,
    },
    "monitored": {"metrics.serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "1m"}},
    "walled in": {"networkPolicy.enabled": True, **ALL_ON},
    "walled in, with doors": {
        "networkPolicy": {"enabled": True, "metricsFrom": PEERS, "toolsFrom": PEERS, "tinkerServiceFrom": PEERS},
        **ALL_ON,
    },
    "a Tinker service that keeps": {
        "tinkerService": {
            "enabled": True,
            "namespace": "team",
            "createSecret": False,
            "persistence": {"enabled": True, "size": "1Ti", "storageClassName": "fast"},
        },
    },
    "tools to look with": {
        "tools": {"enabled": True, "readOnly": True, "ui": True, "namespace": "team",
                  "service": {"type": "NodePort", "port": 80}, "allowedHosts": ["rl.example.com"]},
    },
}  # fmt: skip
RUNTIMES: dict[str, dict[str, Any]] = {
    "as they are": {},
    "another image": {"image": {"repository": "r.example:5000/t", "digest": DIGEST}},
    "environments from another image": {"environmentImage": {"repository": "r.example:5000/v", "digest": DIGEST}},
    "one of them": {"tiny.enabled": False},
    "none": {"default.enabled": False, "tiny.enabled": False},
    "another spec": {
        "default.spec": {"locked": {"env": {"total_steps": None}}, "limits": {"maxActiveRuns": 2}},
        "tiny.spec.backend.url": "http://tinker-service.shared:8005",
    },
    "a test of a mirror": {
        "test.steps": 3,
        "test.image": {"repository": "r.example/o", "digest": DIGEST},
        "test.imagePullSecrets": [{"name": "mirror"}],
    },
}
SERVICE_MONITORS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "ServiceMonitor", "plural": "servicemonitors"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": {"type": "object", "required": ["endpoints", "selector"], "properties": {
                "selector": {"type": "object", "properties": {
                    "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}}}},
                "endpoints": {"type": "array", "items": {"type": "object", "properties": {
                    "port": {"type": "string"},
                    "interval": {"type": "string", "pattern": "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?"
                                 "(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"}}}},
            }}},
        }}}],
    },
}  # fmt: skip
"""What we use of the Prometheus operator's kind, as it declares it."""


@pytest.fixture(scope="module")
def admin_of_charts(empty_plane: ControlPlane) -> Iterator[AdminClient]:
    """Our kinds and the Prometheus operator's are there."""
    admin = empty_plane.admin
    empty_plane.install_definitions()
    admin.post(DEFINITIONS, SERVICE_MONITORS)
    path = "/apis/monitoring.coreos.com/v1/servicemonitors"
    wait_for("ServiceMonitors are served", lambda: empty_plane.serves(path))
    yield admin
    empty_plane.remove_definitions()
    admin.delete(f"{DEFINITIONS}/{SERVICE_MONITORS['metadata']['name']}")


@cache
def resources(admin: AdminClient, api_version: str) -> dict[str, dict[str, Any]]:
    """The API server's resources of a version, by kind."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    return {each["kind"]: each for each in admin.get(root)["resources"] if "/" not in each["name"]}


def dry_run(admin: AdminClient, document: Document) -> None:
    """Apply it without storing anything; raises ApiError for what the API server refuses, including unknown fields."""
    api_version, name = document["apiVersion"], document["metadata"]["name"]
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    resource = resources(admin, api_version)[document["kind"]]
    place = f"namespaces/{document['metadata']['namespace']}/" if resource["namespaced"] else ""
    path = f"{root}/{place}{resource['name']}/{name}"
    query = "?fieldManager=test&force=true&fieldValidation=Strict&dryRun=All"
    admin.patch(path + query, document, "application/apply-patch+yaml")


def pod_of(deployment: Document) -> Document:
    """PodSecurity only warns about a Deployment: it refuses pods."""
    template = deployment["spec"]["template"]
    metadata = {**template["metadata"], "name": "pod", "namespace": deployment["metadata"]["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


ROWS = [
    *(
        pytest.param(OPERATOR_CHART, dict.fromkeys(WITH_KINDS, False) | values, id=f"operator: {name}")
        for name, values in TABLE.items()
    ),
    *(pytest.param(RUNTIMES_CHART, values, id=f"runtimes: {name}") for name, values in RUNTIMES.items()),
]


@pytest.mark.parametrize(("chart", "values"), ROWS)
def test_the_api_server_accepts_it(
    rendering_helm: Helm, admin_of_charts: AdminClient, chart: Path, values: dict[str, Any]
) -> None:
    documents = rendering_helm.rendered(chart, values)
    for document in documents:
        dry_run(admin_of_charts, document)
        if document["kind"] == "Deployment":
            dry_run(admin_of_charts, pod_of(document))


def test_marks_are_on_pods_and_account_and_not_in_selectors(rendering_helm: Helm) -> None:
    """A selector cannot be changed by an upgrade."""
    documents = rendering_helm.rendered(OPERATOR_CHART, TABLE["marked"])
    for name in ("rl-operator", "rl-operator-tools"):
        spec = of_kind(documents, "Deployment", name)["spec"]
        metadata = spec["template"]["metadata"]
        assert metadata["annotations"] == {"sidecar.istio.io/inject": "false"}
        assert metadata["labels"] == {**spec["selector"]["matchLabels"], "team": "platform"}
    account = of_kind(documents, "ServiceAccount", "rl-operator")
    assert account["metadata"]["annotations"] == {"example.com/role": "rl"}
