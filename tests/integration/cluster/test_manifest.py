"""examples/operator.yaml on a real API server, and what it lets the operator do."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.cluster.runs import RunsNamespace

from rl_operator.api.spec_parts.container_resources import parse_quantity
from rl_operator.file_discovery import MEMORY_KIB
from rl_operator.process.operator import ENVIRONMENT_WORKERS

MANIFEST = Path(__file__).parents[3] / "examples" / "operator.yaml"
DOCUMENTS: dict[str, dict[str, Any]] = {
    document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
}

# The namespace and the rights are installed for all tests, in the same strict way.
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/default/serviceaccounts",
    "Deployment": "/apis/apps/v1/namespaces/default/deployments",
}


@pytest.mark.parametrize("kind", PATHS)
def test_the_api_server_accepts_it_without_unknown_fields(control_plane: ControlPlane, kind: str) -> None:
    document = {**DOCUMENTS[kind], "metadata": {"name": DOCUMENTS[kind]["metadata"]["name"]}}
    control_plane.admin.post(f"{PATHS[kind]}?dryRun=All&fieldValidation=Strict", document)


def test_the_operators_pod_and_a_runs_pod_are_restricted(runs: RunsNamespace) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    runs.admin.patch(f"/api/v1/namespaces/{runs.namespace}", {"metadata": {"labels": labels}})
    pod = {"metadata": {"name": "operator"}, "spec": DOCUMENTS["Deployment"]["spec"]["template"]["spec"]}
    runs.admin.post(f"/api/v1/namespaces/{runs.namespace}/pods?dryRun=All", pod)
    runs.apply()
    runs.until_pod()


def test_readers_of_hostile_code_stay_within_the_operators_memory() -> None:
    """Where a container exceeds its memory, all of its processes are killed."""
    (container,) = DOCUMENTS["Deployment"]["spec"]["template"]["spec"]["containers"]
    limit = parse_quantity(container["resources"]["limits"]["memory"])
    assert limit is not None
    assert limit >= 120 * 2**20 + ENVIRONMENT_WORKERS * MEMORY_KIB * 2**10


def test_no_secrets_and_no_wildcards() -> None:
    documents = yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
    rules = [rule for document in documents for rule in document.get("rules", ())]
    assert rules
    for rule in rules:
        assert "secrets" not in rule["resources"]
        assert not any("*" in word for field in ("apiGroups", "resources", "verbs") for word in rule[field])
